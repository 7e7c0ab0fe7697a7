"""Decides which techniques do not run on this model, from the outcomes of the trials."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from jobs.record import Outcome, TrialRecord
from orchestrator.search.base import TOO_SLOW
from orchestrator.search.model.arrays import Array, Indices, Mask, Numbering
from orchestrator.search.model.candidates import Candidate
from orchestrator.search.model.effects.similar_values import similar_to
from orchestrator.search.model.effects.technique_priors import TechniquePriors

Pair = tuple[int, int]
"""Indices of two choices, ascending."""
Cause = Pair | tuple[int]
"""What a failure may be due to: a pair of choices, or one choice."""
_FAILURES = frozenset(
    {
        Outcome.UNSUPPORTED,
        Outcome.FAILED,
        Outcome.CRASHED,
        Outcome.HOST_OUT_OF_MEMORY,
    }
)
_WITH_A_CAUSE = frozenset({Outcome.UNSUPPORTED, Outcome.FAILED})
"""Outcomes whose reason names their cause, and not just how a process ended."""
_MOST_FAILURES = 4
"""A technique that has never run is given up after this many failed trials with it."""
_MOST_PAIR_FAILURES = _MOST_FAILURES // 2
"""The same for a pair of techniques that have never run together: each of the two has run, so half
as many failures are enough."""
_PAIR_WORKS = 0.3
"""Probability that a pair of techniques works after one failed trial that it may explain."""


class Failures:
    """The choices and curves of a plan that ran or failed.

    A choice works if any trial with it ran, and so does a pair of choices. A curve is given up
    after one failed trial. A choice that has never run is given up after four failed trials, and a
    pair after two. Either is given up at once if nothing else can explain the failure, or all
    failures with the same reason. If a trial ends as unsupported, all candidates with the same
    unmet requirement are given up.
    """

    def __init__(self, candidates: Sequence[Candidate], priors: TechniquePriors) -> None:
        numbers: Numbering[tuple[str, object]] = Numbering()
        choices = []
        for candidate in candidates:
            choices.append([numbers[axis, value] for axis, _, value in candidate.techniques])
        self.choices: Indices = np.array(choices, int)
        """Indices of each candidate's choices, shape (candidates, axes)."""
        self._similar = [similar_to(choice, numbers) for choice in numbers]
        """For each choice: the indices of choices with similar effects."""
        self._requires = [candidate.trials[0].settings.requires for candidate in candidates]
        self.untried_probability = _untried_probability(numbers, priors)
        """Prior probability that a choice works, shape (choices,)."""
        self._worked = np.zeros(len(numbers), bool)
        self._failed = np.zeros(len(numbers), int)
        self._worked_together: set[Pair] = set()
        self._failed_together: Counter[Pair] = Counter()
        self._causes: dict[str, set[Cause]] = {}
        """Reason -> what can explain all failures with this reason."""
        self._unmet: set[str] = set()
        self._late: list[tuple[Indices, float]] = []
        """Choices and slot seconds of each trial that did not end in time."""
        self._curves = Numbering[object]().of(candidate.curve for candidate in candidates)
        self._failed_curves: set[int] = set()

    def note(self, index: int, record: TrialRecord) -> None:
        """Learn from the outcome of a candidate's trial."""
        if record.outcome in (Outcome.OK, Outcome.OUT_OF_MEMORY):
            self._worked[self.choices[index]] = True
            self._worked_together.update(_pairs(self.choices[index]))
            for pair in self._worked_together & self._failed_together.keys():
                del self._failed_together[pair]
            return
        is_late = record.outcome is Outcome.TIMED_OUT or record.rule == TOO_SLOW
        if is_late:
            self._late.append((self.choices[index], record.slot_seconds))
        if is_late or record.outcome in _FAILURES:
            reason = record.reason if record.outcome in _WITH_A_CAUSE else ""
            self._count_failure(self.choices[index], reason)
            self._failed_curves.add(int(self._curves[index]))
            if record.outcome is Outcome.UNSUPPORTED and record.rule:
                self._unmet.add(record.rule)

    def _count_failure(self, choices: Indices, reason: str) -> None:
        """Count a failure for each choice and each pair that can explain it.

        Failures with the same ``reason`` share their cause. Without a reason, each has its own.
        """
        suspects = choices[~self._worked[choices]]
        # A pair with a choice that has never run is explained by this choice.
        pairs = set(_pairs(choices[self._worked[choices]])) - self._worked_together
        self._failed[suspects] += 1
        self._failed_together.update(pairs)
        causes: set[Cause] = {(choice,) for choice in suspects.tolist()} | pairs
        if reason:
            shared = self._causes.get(reason, causes) & causes
            causes = self._causes[reason] = shared or causes
        if len(causes) == 1:
            # Everything else in these trials works, so nothing else can be the cause.
            self._give_up(*causes)

    def _give_up(self, cause: Cause) -> None:
        if len(cause) == 1:
            self._failed[cause[0]] = _MOST_FAILURES
        else:
            self._failed_together[cause] = _MOST_PAIR_FAILURES

    @property
    def given_up(self) -> Mask:
        """Whether a candidate is given up, shape (candidates,)."""
        never_worked = ~self._worked & (self._failed >= _MOST_FAILURES)
        given_up = never_worked[self.choices].any(axis=1)
        for pair, count in self._failed_together.items():
            if count >= _MOST_PAIR_FAILURES:
                given_up |= self._has(pair)
        if self._failed_curves:
            given_up |= np.isin(self._curves, list(self._failed_curves))
        if self._unmet:
            unmet = [not self._unmet.isdisjoint(requires) for requires in self._requires]
            given_up |= np.array(unmet)
        return np.asarray(given_up)

    @property
    def unproven(self) -> Mask:
        """Whether no trial with a choice has run yet, shape (choices,)."""
        return ~self._worked

    def probability_to_work(self) -> Array:
        """Probability that each candidate runs, shape (candidates,): all its choices must work."""
        works = np.where(self.unproven, self.untried_probability, 1.0)
        probability = works[self.choices].prod(axis=1)
        for pair in self._failed_together:
            probability[self._has(pair)] *= _PAIR_WORKS
        return np.asarray(probability)

    def late_seconds(self) -> Array:
        """Slot time to be expected after trials that did not end in time, shape (candidates,).

        Any choice of such a trial that has never run may be the cause. So a candidate with some of
        them is expected to take the same share of the trial's time. So is one with choices that are
        similar to them, and have never run, either.
        """
        seconds = np.zeros(len(self.choices))
        for choices, taken in self._late:
            suspects = choices[self.unproven[choices]]
            if len(suspects):
                possible = [*suspects.tolist(), *self._unproven_like(suspects)]
                share = np.isin(self.choices, possible).sum(axis=1) / len(suspects)
                seconds = np.maximum(seconds, share * taken)
        return seconds

    def _unproven_like(self, choices: Indices) -> list[int]:
        """The choices that are similar to some of these, and have never run."""
        unproven = self.unproven
        similar: list[int] = []
        for choice in choices.tolist():
            similar += [other for other in self._similar[choice] if unproven[other]]
        return similar

    def _has(self, pair: Pair) -> Mask:
        """Whether each candidate has both choices of a pair, shape (candidates,)."""
        first, second = pair
        has_both = (self.choices == first).any(axis=1) & (self.choices == second).any(axis=1)
        return np.asarray(has_both)


def _untried_probability(
    numbers: Mapping[tuple[str, object], int], priors: TechniquePriors
) -> Array:
    """Prior probability that a choice works, shape (choices,)."""
    probability = np.ones(len(numbers))
    for (axis, value), number in numbers.items():
        probability[number] = priors.probability_to_work(axis, value)  # type: ignore[arg-type]
    return probability


def _pairs(choices: Indices) -> Iterator[Pair]:
    """All pairs of a candidate's choices, each in ascending order."""
    return itertools.combinations(sorted(choices.tolist()), 2)
