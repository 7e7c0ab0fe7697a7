"""Slot time that a trial of each candidate will likely take: its steps, and what comes before."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from jobs.record import TrialRecord
from orchestrator.search.answer.technique_priors import TechniquePriors
from orchestrator.search.answer.unrecorded import BUILD_SECONDS
from orchestrator.search.frontier.arrays import Array, Mask, Numbering
from orchestrator.search.frontier.candidates import Candidate

USUAL_SECONDS = 2.5
"""Seconds of a trial besides its steps and its compiler: process, model, data, first step."""
_LEAST_SECONDS = 0.2
_LEAST_SCALE = 0.1
_STEPS_OF_AN_EPOCH = 100
"""Steps assumed of a trial that runs a whole epoch."""


class TrialCost:
    """Expected slot time. What a trial takes besides its steps is learnt from those that ran.

    A compiled trial takes many times as long as an eager one, so what each technique adds
    (``technique_priors``) is scaled by what its trials took here. What is built once on a machine
    counts until a trial with it has ended.
    """

    def __init__(self, candidates: Sequence[Candidate], priors: TechniquePriors) -> None:
        self._slow: Numbering[tuple[str, object]] = Numbering()
        """Techniques that take time of their own."""
        additions: list[list[tuple[int, float]]] = []
        builds: Numbering[frozenset[str]] = Numbering()
        self._builds = np.zeros(len(candidates), int)
        """Number of the set of ops that each candidate builds, shape (candidates,)."""
        steps = []
        batches = []
        for index, candidate in enumerate(candidates):
            trial = candidate.trials[0]
            additions.append(self._additions(candidate, priors))
            self._builds[index] = builds[frozenset(trial.settings.builds)]
            counted = trial.measure.steps or _STEPS_OF_AN_EPOCH
            steps.append(trial.measure.warmup_steps + counted)
            batches.append(trial.effective_batch)
        self._overheads = np.zeros((len(candidates), len(self._slow)))
        """Expected seconds that each slow technique adds, shape (candidates, slow techniques)."""
        for index, listed in enumerate(additions):
            for number, seconds in listed:
                self._overheads[index, number] = seconds
        self._steps = np.array(steps, float)
        self._batches = np.array(batches, float)
        self._is_built: Mask = np.array([not ops for ops in builds], bool)
        """Whether each set of ops is there, shape (sets,)."""
        self._plain: list[float] = []
        """Seconds besides steps of trials without slow techniques."""
        self._scales: list[list[float]] = [[] for _ in self._slow]
        """For each slow technique: what its trials took, as a share of what was expected."""

    def _additions(self, candidate: Candidate, priors: TechniquePriors) -> list[tuple[int, float]]:
        """Numbers of a candidate's slow techniques, and the seconds that each is to take."""
        additions = []
        for axis, _, value in candidate.techniques:
            seconds = priors.of(axis, value).overhead_seconds
            if seconds > 0:
                additions.append((self._slow[axis, value], seconds))
        return additions

    def note(self, index: int, record: TrialRecord) -> None:
        """Take in what a trial took; one without a speed says nothing."""
        speed = record.measurements.get("samples_per_second")
        if not speed or not record.slot_seconds:
            return
        in_steps = self._steps[index] * self._batches[index] / speed
        besides = max(_LEAST_SECONDS, record.slot_seconds - in_steps)
        expected = self._overheads[index].sum() + self._to_build()[index]
        if expected:
            scale = max(_LEAST_SCALE, (besides - self._usual()) / expected)
            for number in np.flatnonzero(self._overheads[index]):
                self._scales[number].append(scale)
        else:
            self._plain.append(besides)
        self._is_built[self._builds[index]] = True

    def seconds(self, speeds: Array) -> Array:
        """Seconds of a trial of each candidate, given samples per second, shape (candidates,)."""
        scales = [statistics.median(own) if own else 1.0 for own in self._scales]
        besides = self._usual() + self._overheads @ np.array(scales) + self._to_build()
        return np.asarray(besides + self._steps * self._batches / speeds)

    def _usual(self) -> float:
        if self._plain:
            return statistics.median(self._plain)
        return USUAL_SECONDS

    def _to_build(self) -> Array:
        """Seconds of building what is not there yet, shape (candidates,)."""
        return np.where(self._is_built[self._builds], 0.0, BUILD_SECONDS)
