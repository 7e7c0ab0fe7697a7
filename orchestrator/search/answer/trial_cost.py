"""Slot time that a trial of each candidate will likely take: its steps, and what comes before."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from jobs.record import TrialRecord
from orchestrator.search.answer.technique_priors import TechniquePriors
from orchestrator.search.frontier.arrays import Array
from orchestrator.search.frontier.candidates import Candidate

USUAL_SECONDS = 2.5
"""Seconds of a trial besides its steps and its compiler: process, model, data, first step."""
_LEAST_SECONDS = 0.2
_STEPS_OF_AN_EPOCH = 100
"""Steps assumed of a trial that runs a whole epoch."""


class TrialCost:
    """Expected slot time. What a trial takes besides its steps is learnt from those that ran.

    A compiled trial takes many times as long as an eager one, so techniques with an overhead of
    their own (``technique_priors``) are learnt apart.
    """

    def __init__(self, candidates: Sequence[Candidate], priors: TechniquePriors) -> None:
        overheads = []
        steps = []
        batches = []
        for candidate in candidates:
            trial = candidate.trials[0]
            own = 0.0
            for axis, _, value in candidate.techniques:
                own += max(0.0, priors.of(axis, value).overhead_seconds)
            overheads.append(own)
            counted = trial.measure.steps or _STEPS_OF_AN_EPOCH
            steps.append(trial.measure.warmup_steps + counted)
            batches.append(trial.effective_batch)
        self._overheads = np.array(overheads)
        self._steps = np.array(steps, float)
        self._batches = np.array(batches, float)
        self._measured: dict[float, list[float]] = {}
        """Prior overhead of techniques -> seconds besides steps that their trials took."""

    def note(self, index: int, record: TrialRecord) -> None:
        """Take in what a trial took; one without a speed says nothing."""
        speed = record.measurements.get("samples_per_second")
        if not speed or not record.slot_seconds:
            return
        in_steps = self._steps[index] * self._batches[index] / speed
        besides = max(_LEAST_SECONDS, record.slot_seconds - in_steps)
        self._measured.setdefault(float(self._overheads[index]), []).append(besides)

    def seconds(self, speeds: Array) -> Array:
        """Seconds of a trial of each candidate, given samples per second, shape (candidates,)."""
        usual = USUAL_SECONDS
        if 0.0 in self._measured:
            usual = statistics.median(self._measured[0.0])
        besides = usual + self._overheads
        for overhead, measured in self._measured.items():
            besides[self._overheads == overhead] = statistics.median(measured)
        return np.asarray(besides + self._steps * self._batches / speeds)
