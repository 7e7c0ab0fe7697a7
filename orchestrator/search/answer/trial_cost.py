"""The expected slot time of a trial of each candidate: its steps, and everything else."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from jobs.record import TrialRecord
from orchestrator.search.answer.technique_priors import TechniquePriors
from orchestrator.search.frontier.arrays import Array
from orchestrator.search.frontier.candidates import Candidate

USUAL_SECONDS = 2.5
"""Seconds of a trial without its steps and its compilation: process, model, data, first step.
Assumed until a trial without overhead has ended."""
_LEAST_SECONDS = 0.2
"""A trial takes at least this long besides its steps. A smaller difference is measurement error."""
_STEPS_OF_AN_EPOCH = 100
"""Assumed number of steps of a trial that runs a whole epoch."""


class TrialCost:
    """Expected slot time of trials: the time of their steps, and an overhead.

    The overhead is learnt from the trials that ran. A compiled trial takes many times as long as an
    eager one. So there is a separate figure for each prior overhead (``technique_priors``).
    """

    def __init__(self, candidates: Sequence[Candidate], priors: TechniquePriors) -> None:
        overheads = []
        steps = []
        batches = []
        for candidate in candidates:
            trial = candidate.trials[0]
            overhead = 0.0
            for axis, _, value in candidate.techniques:
                overhead += max(0.0, priors.of(axis, value).overhead_seconds)
            overheads.append(overhead)
            counted = trial.measure.steps or _STEPS_OF_AN_EPOCH
            steps.append(trial.measure.warmup_steps + counted)
            batches.append(trial.effective_batch)
        self._overheads = np.array(overheads)
        self._steps = np.array(steps, float)
        self._batches = np.array(batches, float)
        self._measured: dict[float, list[float]] = {}
        """Prior overhead of the techniques -> measured overheads of trials, in seconds."""

    def note(self, index: int, record: TrialRecord) -> None:
        """Learn the overhead of a trial; a trial without a speed is ignored."""
        speed = record.measurements.get("samples_per_second")
        if not speed or not record.slot_seconds:
            return
        # Overhead = slot time - optimizer steps × samples per step / samples per second.
        in_steps = self._steps[index] * self._batches[index] / speed
        seconds = max(_LEAST_SECONDS, record.slot_seconds - in_steps)
        self._measured.setdefault(float(self._overheads[index]), []).append(seconds)

    def seconds(self, speeds: Array) -> Array:
        """Expected seconds of a trial of each candidate, shape (candidates,).

        ``speeds`` are the expected samples per second, of the same shape.
        """
        usual = USUAL_SECONDS
        if 0.0 in self._measured:
            usual = statistics.median(self._measured[0.0])
        overheads = usual + self._overheads
        # A measured overhead replaces the prior one. The median ignores a trial that was disturbed.
        for overhead, measured in self._measured.items():
            overheads[self._overheads == overhead] = statistics.median(measured)
        return np.asarray(overheads + self._steps * self._batches / speeds)
