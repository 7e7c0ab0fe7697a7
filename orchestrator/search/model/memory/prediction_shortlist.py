"""Which trials of a plan to predict, so that the memory of all others follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from jobs.spec import TrialSpec
from jobs.techniques import AXES
from orchestrator.search.model.candidates import NO_DEVICE_MEMORY, Candidate, Curve, candidates_of
from orchestrator.search.model.effects.technique_priors import shipped_priors

_SMALL_PLAN = 300
"""In a plan with at most this many trials, all are predicted."""
_LARGEST_PREDICTED = 256
"""The largest micro-batch to predict. Larger ones are extrapolated from the last two."""
_SIZE_RATIO = 4
"""In a larger plan, each predicted micro-batch is at least this many times the one before."""


def prediction_shortlist(trials: Sequence[TrialSpec]) -> Sequence[TrialSpec]:
    """The trials to predict: a few micro-batches of each set of techniques, the fastest sets first.

    Memory is nearly affine in the micro-batch, so the other micro-batches can be interpolated.
    """
    if len(trials) <= _SMALL_PLAN:
        return list(trials)
    by_curve: dict[Curve, list[Candidate]] = {}
    for candidate in candidates_of(trials):
        by_curve.setdefault(candidate.curve, []).append(candidate)
    first = next(iter(by_curve))
    chosen: list[TrialSpec] = []
    for curve in sorted(
        filter(partial(_needs_prediction, first), by_curve), key=_expected_log_time
    ):
        last = 0
        for candidate in sorted(by_curve[curve], key=_micro_batch):
            size = candidate.micro_batch
            if last == 0 or _SIZE_RATIO * last <= size <= _LARGEST_PREDICTED:
                chosen.append(candidate.trials[0])
                last = size
    return chosen


def _needs_prediction(first: Curve, curve: Curve) -> bool:
    """Whether a curve needs predictions of its own.

    A curve that differs from the first one in a technique without effect on device memory, such as
    a data loader, has the memory of another curve.
    """
    usual = {axis: value for axis, _, value in first.techniques}
    for axis, _, value in curve.techniques:
        if axis in NO_DEVICE_MEMORY and value != usual.get(axis):
            return False
    return True


def _expected_log_time(curve: Curve) -> float:
    """Expected logarithm of a curve's time, by the recorded tables; a key to sort by.

    The fastest curves are predicted first, because they are the likeliest picks.
    """
    priors = shipped_priors()
    total = 0.0
    for axis, _, value in curve.techniques:
        effect = priors.of(axis, value)
        # A technique without a recorded effect comes later, as if it were slower.
        if effect.models:
            total += effect.log_time
        elif axis in AXES and value != AXES[axis].default:
            total += effect.deviation
    return total


def _micro_batch(candidate: Candidate) -> int:
    return candidate.micro_batch
