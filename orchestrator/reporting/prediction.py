"""Predictions in words and as plain rows: what the verb prints and writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.planning.config import SweepConfig
from orchestrator.prediction.prediction import CARDS, KINDS, Figure, Prediction

_GIB = 2**30
_SHOWN_BYTES = 2**20


def table(predictions: Sequence[Prediction], labels: Mapping[str, str]) -> str:
    """Figures in GiB, the interval of the device's total, verdicts, the trial's label, and under it its anatomy."""
    return "\n".join(_lines(predictions, labels))


def labels(predictions: Sequence[Prediction], config: SweepConfig) -> dict[str, str]:
    """What sets each trial of the config apart, by its identifier."""
    return {prediction.trial_id: _label(prediction.choices, config) for prediction in predictions}


def _lines(predictions: Sequence[Prediction], labels: Mapping[str, str]) -> Iterator[str]:
    cards = " ".join(f"{card:>7}" for card in CARDS)
    yield f"{'trial':<12}  {'allocated':>9}  {'reserved':>8}  {'device (interval)':>22}  {cards} GB"
    for prediction in predictions:
        yield from _trial(prediction, labels.get(prediction.trial_id, ""))


def _trial(prediction: Prediction, label: str) -> Iterator[str]:
    if prediction.allocated is None or prediction.reserved is None:
        yield f"{prediction.trial_id:<12}  unknown: {prediction.unknown}  | {label}"
        return
    device = prediction.device
    total = (
        f"{_gib(device.bytes)} ({_gib(device.low)} to {_gib(device.high)})" if device else "unknown"
    )
    verdicts = " ".join(f"{prediction.fits(size):>7}" for size in CARDS.values())
    figures = (
        f"{_gib(prediction.allocated.bytes):>9}  {_gib(prediction.reserved.bytes):>8}  {total:>22}"
    )
    yield f"{prediction.trial_id:<12}  {figures}  {verdicts}     | {label}"
    held = sorted(prediction.anatomy.items(), key=lambda item: -item[1])
    parts = [f"{kind} {_gib(nbytes)}" for kind, nbytes in held if nbytes >= _SHOWN_BYTES]
    yield f"{'':<12}  at the peak: {', '.join(parts)}"


def _label(choices: Mapping[str, str], config: SweepConfig) -> str:
    base = {} if config.axes or config.subsets else config.baseline
    given = (f"{axis}={value}" for axis, value in choices.items() if axis in config.axes_in_play)
    told = [
        part for part in given if part not in {f"{axis}={value}" for axis, value in base.items()}
    ]
    return " ".join(told) or "as the baseline"


def _gib(nbytes: int) -> str:
    return f"{nbytes / _GIB:.2f}"


def row(prediction: Prediction) -> dict[str, Any]:
    """A flat row: bytes as integers, null where unknown; choices as JSON text."""
    values: dict[str, Any] = {
        "trial_id": prediction.trial_id,
        "choices": json.dumps(dict(prediction.choices)),
        "unknown": prediction.unknown,
    }
    for name in ("allocated", "reserved", "device"):
        given: Figure | None = getattr(prediction, name)
        values |= {
            f"{name}_{part}": getattr(given, part) if given else None
            for part in ("bytes", "low", "high")
        }
    for kind in KINDS:
        known = prediction.anatomy.get(kind, 0) if prediction.allocated else None
        values[f"{kind.replace(' ', '_').lower()}_bytes"] = known
    return values | {f"fits_{card}_gb": prediction.fits(size) for card, size in CARDS.items()}
