"""Predictions in words and as plain rows: what ``predict`` prints and writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from jobs.anatomy.memory.kinds import KINDS
from orchestrator.labels import label
from orchestrator.planning.settings import SweepConfig
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.units import GIB, MIB

if TYPE_CHECKING:
    from orchestrator.prediction.prediction import Figure, Prediction

_FIGURES = ("allocated", "reserved", "device")
_SHOWN_BYTES = MIB
"""Smaller parts of the anatomy are left out."""


def table(
    predictions: Sequence[Prediction],
    labels: Mapping[str, str],
    versions: Mapping[str, str] | None = None,
) -> str:
    """A table with a row for each trial: figures in GiB, the cards that suffice, and the label.

    ``labels`` maps a trial's id to its label. The lines under each trial have its anatomy and its
    peculiarities. The first line names the versions that the figures are for. None stands for the
    installed versions.
    """
    if not predictions:
        return "no trials"
    # Every prediction is judged for the same cards.
    cards = " ".join(f"{card:>7}" for card in predictions[0].cards)
    header = f"{'trial':<12}  {'allocated':>9}  {'reserved':>8}  {'device (interval)':>22}"
    lines = [_version_line(versions or installed_versions()), f"{header}  {cards} GB"]
    for prediction in predictions:
        lines += _trial_lines(prediction, labels.get(prediction.trial_id, ""))
    lines += _explanations(predictions)
    return visible("\n".join(lines))


def installed_versions() -> dict[str, str]:
    """The libraries that decide the figures, with their versions on this machine."""
    return {name: version(name) for name in ("transformers", "torch")}


def _version_line(versions: Mapping[str, str]) -> str:
    listed = " and ".join(f"{name} {number}" for name, number in versions.items())
    return f"for {listed}; other versions may take other memory"


def _explanations(predictions: Sequence[Prediction]) -> Iterator[str]:
    """A line of explanation for each word of the table, and for each reason of a wider interval."""
    notes: dict[str, None] = {}
    fits: set[str] = set()
    for prediction in predictions:
        notes |= dict.fromkeys(prediction.notes)
        fits |= set(prediction.cards.values())
    yield from notes
    if "maybe" in fits:
        yield (
            "maybe: fits by the constants of the GPU that was predicted for; the context, kernels "
            "and workspaces of this card were not measured"
        )
    if "tight" in fits:
        yield "tight: fits only if the allocator gives cached memory back"


def labels(predictions: Sequence[Prediction], config: SweepConfig) -> dict[str, str]:
    """Trial id -> the label of its configuration."""
    axes = config.axes_in_play
    return {prediction.trial_id: label(prediction.choices, axes) for prediction in predictions}


def row(prediction: Prediction) -> dict[str, Any]:
    """A flat row: bytes as integers, null if unknown; choices as JSON text."""
    values: dict[str, Any] = {
        "trial_id": prediction.trial_id,
        "choices": json.dumps(dict(prediction.choices)),
        "unknown": prediction.unknown,
        "refused": prediction.refused,
    }
    for name in _FIGURES:
        values |= _figure_columns(name, getattr(prediction, name))
    values |= _figure_columns("typical_device", prediction.typical_device)
    values["worst_tokens"] = prediction.worst_tokens
    values["typical_tokens"] = prediction.typical_tokens
    values["largest_block_bytes"] = prediction.largest_block
    values["notes"] = "; ".join(prediction.notes)
    values |= installed_versions()
    values |= _kinds(prediction)
    for card, fit in prediction.cards.items():
        values[f"fits_{card}_gb"] = fit
    return values


def _kinds(prediction: Prediction) -> dict[str, int | None]:
    """A column for each kind of memory: its bytes at the peak."""
    # Kinds without memory at the peak are zero bytes, unless the whole prediction is unknown.
    is_known = prediction.allocated is not None
    columns: dict[str, int | None] = {}
    for kind in KINDS:
        column = f"{kind.replace(' ', '_').lower()}_bytes"
        columns[column] = None
        if is_known:
            columns[column] = prediction.anatomy.get(kind, 0)
    return columns


def _figure_columns(name: str, figure: Figure | None) -> dict[str, int | None]:
    if figure is None:
        return {f"{name}_bytes": None, f"{name}_low": None, f"{name}_high": None}
    return {f"{name}_bytes": figure.bytes, f"{name}_low": figure.low, f"{name}_high": figure.high}


def _trial_lines(prediction: Prediction, words: str) -> Iterator[str]:
    yield f"{prediction.trial_id:<12}  {_decision(prediction)}  | {words}"
    if prediction.refused or prediction.allocated is None or prediction.reserved is None:
        return
    if prediction.typical_device is not None:
        yield f"{'':<12}  {_batch_lengths(prediction)}"
    yield f"{'':<12}  at the peak: {_anatomy(prediction)}"


def _decision(prediction: Prediction) -> str:
    """The peaks in GiB and the cards that they fit, as wide as the columns' headings.

    For a trial without figures, the reason why there are none.
    """
    if prediction.refused:
        return f"refused: {prediction.refused}"
    if prediction.allocated is None or prediction.reserved is None:
        return f"unknown: {prediction.unknown}"
    allocated = f"{_gib(prediction.allocated.bytes):>9}"
    reserved = f"{_gib(prediction.reserved.bytes):>8}"
    device = f"{_device(prediction.device):>22}"
    # One column a card.
    fits = " ".join(f"{fit:>7}" for fit in prediction.cards.values())
    return f"{allocated}  {reserved}  {device}  {fits}   "


def _batch_lengths(prediction: Prediction) -> str:
    """A line with the worst batch, which the figures are for, and the typical batch."""
    return (
        f"worst batch: {prediction.worst_tokens} tokens, device {_device(prediction.device)}; "
        f"typical batch: {prediction.typical_tokens} tokens, "
        f"device {_device(prediction.typical_device)}"
    )


def _device(device: Figure | None) -> str:
    if device is None:
        return "unknown"
    return f"{_gib(device.bytes)} ({_gib(device.low)} to {_gib(device.high)})"


def _anatomy(prediction: Prediction) -> str:
    """The kinds of memory at the peak, the largest first."""
    sizes = prediction.anatomy
    parts = []
    for kind in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if sizes[kind] >= _SHOWN_BYTES:
            parts.append(f"{kind} {_gib(sizes[kind])}")
    return ", ".join(parts)


def _gib(nbytes: int) -> str:
    return f"{nbytes / GIB:.2f}"
