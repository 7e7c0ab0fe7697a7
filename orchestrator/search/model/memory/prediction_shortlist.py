"""Which trials of a plan to predict, so that the memory of all others follows from them."""

from collections.abc import Sequence
from functools import partial

from jobs.spec import TrialSpec
from jobs.techniques import AXES
from orchestrator.search.model.candidates import NO_DEVICE_MEMORY, Curve, candidates_of
from orchestrator.search.model.effects.technique_priors import shipped_priors

_SMALL_PLAN = 300
"""In a plan with at most this many trials, all are predicted."""
_LARGEST_PREDICTED = 256
"""The largest micro-batch to predict. Larger ones are extrapolated from the last two."""
_NEARLY_EQUAL = 0.1
"""A technique changes the memory hardly, or in a known way, if the deviation of its effect between
models is at most this: then another prediction can be transferred."""
_SIZE_RATIO = 4
"""In a larger plan, each predicted micro-batch is at least this many times the one before."""


def prediction_shortlist(trials: Sequence[TrialSpec]) -> Sequence[TrialSpec]:
    """The trials to predict: a few micro-batches of each set of techniques, the fastest sets
    first."""
    if len(trials) <= _SMALL_PLAN:
        return list(trials)
    by_curve: dict[Curve, dict[int, TrialSpec]] = {}
    for candidate in candidates_of(trials):
        sizes = by_curve.setdefault(candidate.curve, {})
        sizes.setdefault(candidate.micro_batch, candidate.trials[0])
    first = next(iter(by_curve))
    needed = [curve for curve in by_curve if _needs_prediction(curve, first)]
    chosen: list[TrialSpec] = []
    for curve in sorted(needed, key=partial(_lateness, first)):
        last = 0
        for size, trial in sorted(by_curve[curve].items()):
            if last == 0 or _SIZE_RATIO * last <= size <= _LARGEST_PREDICTED:
                chosen.append(trial)
                last = size
    return chosen


def _needs_prediction(curve: Curve, first: Curve) -> bool:
    """Whether a curve needs predictions of its own."""
    # One that differs from the first in a data loader, say, has the memory of another curve.
    changed = set(curve.techniques) - set(first.techniques)
    return not any(axis in NO_DEVICE_MEMORY for axis, _, _ in changed)


def _lateness(first: Curve, curve: Curve) -> tuple[bool, int, float]:
    """Less for a curve whose prediction says more: first those that no other can stand for, then
    those with few changes, which stand for many others, and the likeliest picks among them."""
    changed = set(curve.techniques) - set(first.techniques)
    own = {axis: value for axis, _, value in first.techniques}
    between = shipped_priors().between
    effects = [between(axis, own.get(axis, ""), value) for axis, _, value in changed]
    is_transferred = any(effect.memory_deviation <= _NEARLY_EQUAL for effect in effects)
    return is_transferred, len(changed), _expected_log_time(curve)


def _expected_log_time(curve: Curve) -> float:
    """Expected logarithm of a curve's time: the likeliest picks are predicted first."""
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
