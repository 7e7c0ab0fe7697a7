"""Successive halving on a recorded grid: many short trials, and longer ones of the fastest third.

The method of Jamieson and Talwalkar (2016). A trial of a third of the steps takes a third of their
time, but starts and compiles as long as any other. Its speed is less exact.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.record import Outcome, TrialRecord
from tests.benchmarks.best.grids import Grid

_SHARES = (1 / 9, 1 / 3, 1.0)
"""The rungs, as shares of a trial's steps."""
_STEPS = 8
"""Steps of a whole trial in a table that does not say how many it had."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Halved:
    """What successive halving found."""

    trials: int
    seconds: float
    picks: Mapping[int, str | None]
    """Budget -> the fastest of the last rung."""


class _Rungs:
    """Measures trials of few or all of their steps."""

    def __init__(self, noise: float, seed: int) -> None:
        self._noise = noise
        self._random = random.Random(seed)
        self.trials = 0
        self.seconds = 0.0

    def speed(self, record: TrialRecord, share: float) -> float | None:
        """The measured speed after a share of the steps; None if the trial did not end ok."""
        self.trials += 1
        self.seconds += seconds_of(record, share)
        if record.outcome is not Outcome.OK:
            return None
        # The error of a mean falls with the root of the number of steps.
        factor = max(0.2, self._random.gauss(1.0, self._noise / math.sqrt(share)))
        return float(record.measurements["samples_per_second"] * factor)


def seconds_of(record: TrialRecord, share: float) -> float:
    """Slot seconds of a trial with a share of its steps."""
    speed = record.measurements.get("samples_per_second")
    if not speed:
        return record.slot_seconds
    steps = min(0.8 * record.slot_seconds, _STEPS * record.spec.effective_batch / speed)
    return record.slot_seconds - (1 - share) * steps


def halved(grid: Grid, noise: float, seed: int, seconds: float) -> Halved:
    """Run successive halving, with as many trials in the first rung as the time allows."""
    records = [own for own in grid.table.values() if own.spec.training_recipe == grid.recipe]
    random.Random(seed).shuffle(records)
    best = _bracket(grid, records[:1], noise, seed)
    for count in range(2, len(records) + 1):
        result = _bracket(grid, records[:count], noise, seed)
        if result.seconds > seconds:
            break
        best = result
    return best


def _bracket(grid: Grid, first: Sequence[TrialRecord], noise: float, seed: int) -> Halved:
    rungs = _Rungs(noise, seed)
    alive = list(first)
    picks: dict[int, str | None] = {}
    for share in _SHARES:
        measured = [(rungs.speed(record, share), record) for record in alive]
        ranked = {budget: _ranked(measured, budget) for budget in grid.budgets}
        picks = {budget: next(iter(listed), None) for budget, listed in ranked.items()}
        # Each budget has its own fastest third, because one size fits only some of the budgets.
        kept = set()
        for listed in ranked.values():
            kept.update(listed[: math.ceil(len(listed) / 3)])
        alive = [record for record in alive if record.trial_id in kept]
    return Halved(trials=rungs.trials, seconds=rungs.seconds, picks=picks)


def _ranked(measured: Sequence[tuple[float | None, TrialRecord]], budget: int) -> list[str]:
    """The trials within a budget, fastest first."""
    fitting = []
    for speed, record in measured:
        if speed is not None and record.measurements["device_peak_bytes"] <= budget:
            fitting.append((speed, record.trial_id))
    return [trial_id for _, trial_id in sorted(fitting, reverse=True)]
