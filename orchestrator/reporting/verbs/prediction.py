"""Predictions in words and as plain rows: what ``predict`` prints and writes."""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from jobs.anatomy_record import KINDS
from orchestrator.labels import label
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.units import GIB, number

if TYPE_CHECKING:
    from orchestrator.prediction.prediction import Bounds, Figure, Prediction
    from orchestrator.prediction.time.step_time import StepTime


_FITS = {
    "maybe": "fits by the constants of the GPU that was predicted for; the context, kernels and "
    "workspaces of this card were not measured",
    "tight": "fits only if the allocator gives cached memory back",
}
"""Whether a configuration fits a card -> what that rests on."""


def table(
    predictions: Sequence[Prediction],
    axes: Sequence[str],
    times: Sequence[StepTime | None] = (),
    *,
    evaluates: bool,
    gpu: tuple[str, int] | None = None,
) -> str:
    """A table with a row for each trial: figures in GiB, the cards that suffice, and the label.
    ``times`` has the time of each trial's step, if it was forecast; ``gpu`` the name and the bytes
    of the card that was predicted for."""
    if not predictions:
        return "no trials"
    cards = " ".join(f"{card:>7}" for card in predictions[0].cards)
    header = f"{'trial':<12}  {'allocated':>9}  {'reserved':>8}  {'device (interval) GiB':>22}"
    lines = [heading(evaluates=evaluates), f"{header}  {cards} GB"]
    for prediction, time in itertools.zip_longest(predictions, times):
        lines += _trial_lines(prediction, label(prediction.choices, axes))
        if time is not None:
            lines.append(f"{'':<12}  {time_words(time)}")
    lines += _below(predictions)
    if gpu is not None:
        answers = Counter(own.fits(gpu[1]) for own in predictions)
        counts = ", ".join(f"{fit} {count}" for fit, count in answers.most_common())
        lines.append(f"{gpu[0]}, {gpu[1] / GIB:.1f} GiB, does a trial fit: {counts}")
    return visible("\n".join(lines))


def _below(predictions: Sequence[Prediction]) -> Iterator[str]:
    """Why trials are unknown, what holds for several of them, and what the words mean."""
    reasons = Counter(own.unknown for own in predictions if own.unknown and not own.refused)
    for why, count in reasons.items():
        yield f"unknown, {count} of {len(predictions)} trials: {why}"
    yield from dict.fromkeys(note for own in predictions for note in own.notes)
    if any(own.epoch_steps and own.step for own in predictions):
        yield "unequal rows: the time is that of an epoch's steps in the mean, new lengths included"
    fits = {fit for own in predictions for fit in own.cards.values()}
    yield from (f"{fit}: {meaning}" for fit, meaning in _FITS.items() if fit in fits)


def heading(*, evaluates: bool) -> str:
    """What the figures include, and which libraries they are for."""
    installed = installed_versions().items()
    listed = " and ".join(f"{name} {its_version}" for name, its_version in installed)
    parts = "training and evaluation" if evaluates else "the training alone, no evaluation"
    return f"{parts}, for {listed}; other versions may take other memory"


@functools.cache
def installed_versions() -> dict[str, str]:
    """The libraries that decide the figures, with their versions on this machine."""
    return {name: version(name) for name in ("transformers", "torch")}


def row(prediction: Prediction) -> dict[str, Any]:
    """A flat row: bytes as integers, null if unknown; choices as JSON text."""
    values: dict[str, Any] = {
        "trial_id": prediction.trial_id,
        "choices": json.dumps(dict(prediction.choices)),
        "unknown": prediction.unknown,
        "refused": prediction.refused,
    }
    for name in ("allocated", "reserved", "device", "trial_device"):
        figure = getattr(prediction, name)
        for end in ("bytes", "low", "high"):
            values[f"{name}_{end}"] = None if figure is None else getattr(figure, end)
    if (bounds := prediction.bounds) is not None:
        values |= {"device_low": bounds.least, "device_high": bounds.most}
    values |= {
        "epoch_steps": prediction.epoch_steps,
        "longest_tokens": prediction.longest_tokens,
        "largest_block_bytes": prediction.largest_block,
        "notes": "; ".join(prediction.notes),
        **installed_versions(),
    }
    # Kinds without memory at the peak are zero bytes, unless the whole prediction is unknown.
    is_known = prediction.allocated is not None
    for kind in KINDS:
        column = f"{kind.replace(' ', '_').lower()}_bytes"
        values[column] = prediction.anatomy.get(kind, 0) if is_known else None
    for card, fit in prediction.cards.items():
        values[f"fits_{card}_gb"] = fit
    return values


def _trial_lines(prediction: Prediction, words: str) -> Iterator[str]:
    yield f"{prediction.trial_id:<12}  {_decision(prediction)}  | {words}"
    if prediction.refused or prediction.allocated is None or prediction.reserved is None:
        return
    if prediction.trial_device is not None:
        epoch = f"{prediction.epoch_steps} steps of up to {prediction.longest_tokens} tokens"
        trial = f"a trial of a few steps: device {_device(prediction.trial_device)}"
        yield f"{'':<12}  over the epoch's own order, {epoch}; {trial}"
    sizes = sorted(prediction.anatomy.items(), key=lambda size: -size[1])
    parts = [f"{kind} {_gib(nbytes)}" for kind, nbytes in sizes if _gib(nbytes) != _gib(0)]
    if parts:
        yield f"{'':<12}  at the peak: {', '.join(parts)}"


def _decision(prediction: Prediction) -> str:
    """As wide as the columns' headings, if there are figures."""
    if prediction.refused:
        return f"refused: {prediction.refused}"
    if prediction.allocated is None or prediction.reserved is None:
        return f"unknown{_bounds(prediction.bounds)}"
    allocated = f"{_gib(prediction.allocated.bytes):>9}"
    reserved = f"{_gib(prediction.reserved.bytes):>8}"
    device = f"{_device(prediction.device):>22}"
    fits = " ".join(f"{fit:>7}" for fit in prediction.cards.values())
    return f"{allocated}  {reserved}  {device}  {fits}   "


def _bounds(bounds: Bounds | None) -> str:
    if bounds is None:
        return ""
    most = "" if bounds.most is None else f", at most {_gib(bounds.most)}"
    return f"; at least {_gib(bounds.least)}{most}"


def _device(device: Figure | None) -> str:
    if device is None:
        return "unknown"
    return f"{_gib(device.bytes)} ({_gib(device.low)} to {_gib(device.high)})"


def _gib(nbytes: int) -> str:
    return f"{nbytes / GIB:.2f}"


def time_row(time: StepTime | None) -> dict[str, Any]:
    """Plain values, null if nothing is known. Of a host-bound step only the interval is known, so
    it has no rates."""
    if time is None:
        names = ("step_bound", "step_seconds", "step_seconds_low", "step_seconds_high")
        return dict.fromkeys(
            (*names, "step_host_seconds", "samples_per_second", "tokens_per_second", "mfu")
        )
    is_known = time.bound != "host"
    return {
        "step_bound": time.bound,
        "step_seconds": time.seconds if is_known else None,
        "step_seconds_low": time.low,
        "step_seconds_high": time.high,
        "step_host_seconds": time.host_seconds,
        "samples_per_second": time.samples_per_second if is_known else None,
        "tokens_per_second": time.tokens_per_second if is_known else None,
        "mfu": time.mfu if is_known else None,
    }


def time_words(time: StepTime) -> str:
    """One line: seconds with the interval, rates, and what bounds them."""
    if time.bound == "host":
        return f"time: host-bound, {time.low:.3g} to {time.high:.3g} s a step"
    seconds = f"{time.seconds:.3g} s a step ({time.low:.3g} to {time.high:.3g})"
    parts = [seconds, f"{number(time.samples_per_second)} samples/s"]
    if time.tokens_per_second is not None:
        parts.append(f"{time.tokens_per_second:,.0f} tokens/s")
    if time.mfu is not None:
        parts.append(f"MFU {time.mfu:.0%}")
    if time.bound == "either":
        parts.append("the longest on a slow host")
    return f"time: {', '.join(parts)}"
