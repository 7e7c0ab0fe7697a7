"""Which techniques work on this model, from the trials that failed and those that ran."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jobs.record import Outcome, TrialRecord
from orchestrator.search.answer.technique_priors import TechniquePriors
from orchestrator.search.frontier.arrays import Array, Indices, Mask, Numbering
from orchestrator.search.frontier.candidates import Candidate

_FAILURES = frozenset(
    {
        Outcome.UNSUPPORTED,
        Outcome.FAILED,
        Outcome.CRASHED,
        Outcome.TIMED_OUT,
        Outcome.HOST_OUT_OF_MEMORY,
    }
)
_FAILURES_OF_A_VALUE = 4
"""A technique that never ran is given up after it was part of so many failures."""


class Failures:
    """What ran and what failed, for each choice of the plan.

    A choice that ran once works. A curve that failed is given up. A choice that has never run is
    given up when it failed among choices that work, or after four failures. One whose requirement
    is not met is given up at once.
    """

    def __init__(self, candidates: Sequence[Candidate], priors: TechniquePriors) -> None:
        numbers: Numbering[tuple[str, object]] = Numbering()
        choices = []
        for candidate in candidates:
            choices.append([numbers[axis, value] for axis, _, value in candidate.techniques])
        self.choices: Indices = np.array(choices, int)
        """Numbers of each candidate's choices, shape (candidates, axes)."""
        self._requires = [own.trials[0].settings.requires for own in candidates]
        self.works_untried: Array = np.ones(len(numbers))
        """Probability that a choice works before it was tried, shape (choices,)."""
        for (axis, value), number in numbers.items():
            self.works_untried[number] = priors.probability_to_work(axis, value)  # type: ignore[arg-type]
        self._worked = np.zeros(len(numbers), bool)
        self._failed = np.zeros(len(numbers), int)
        self._unmet: set[str] = set()
        curves: Numbering[object] = Numbering()
        self._curves = np.array([curves[own.curve] for own in candidates], int)
        self._hopeless_curves: set[int] = set()

    def note(self, index: int, record: TrialRecord) -> None:
        """Take in how a candidate's trial ended."""
        if record.outcome in (Outcome.OK, Outcome.OUT_OF_MEMORY):
            self._worked[self.choices[index]] = True
        elif record.outcome in _FAILURES:
            self._blame(self.choices[index])
            self._hopeless_curves.add(int(self._curves[index]))
            if record.outcome is Outcome.UNSUPPORTED and record.rule:
                self._unmet.add(record.rule)

    def _blame(self, choices: Indices) -> None:
        """Count a failure against the choices that have not run yet."""
        suspects = choices[~self._worked[choices]]
        if len(suspects) == 1:
            # Everything else in this trial works, so nothing else can be the cause.
            self._failed[suspects] = _FAILURES_OF_A_VALUE
        self._failed[suspects] += 1

    @property
    def hopeless(self) -> Mask:
        """Whether a candidate is given up, shape (candidates,)."""
        is_given_up = ~self._worked & (self._failed >= _FAILURES_OF_A_VALUE)
        hopeless = is_given_up[self.choices].any(axis=1)
        if self._hopeless_curves:
            hopeless |= np.isin(self._curves, list(self._hopeless_curves))
        if self._unmet:
            unmet = [not self._unmet.isdisjoint(requires) for requires in self._requires]
            hopeless |= np.array(unmet)
        return np.asarray(hopeless)

    @property
    def unproven(self) -> Mask:
        """Whether a choice has not run yet, shape (choices,)."""
        return ~self._worked

    def probability_to_work(self) -> Array:
        """That each candidate runs, shape (candidates,)."""
        works = np.where(self.unproven, self.works_untried, 1.0)
        return np.asarray(works[self.choices].prod(axis=1))
