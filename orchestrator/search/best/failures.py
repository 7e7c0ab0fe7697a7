"""Decides which techniques do not run on this model, from the outcomes of the trials."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from jobs.record import Outcome, TrialRecord
from jobs.spec import Choice
from orchestrator.search.base import TOO_SLOW
from orchestrator.search.model.arrays import Array, Indices, Mask, Numbering
from orchestrator.search.model.candidates import Candidate
from orchestrator.search.model.effects.similar_values import similar_to
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.effects.unrecorded import compiles

Cause = tuple[int, ...]
"""What a failure may be due to: the index of one choice, or of each choice of a pair, ascending."""
_WITH_A_CAUSE = (Outcome.UNSUPPORTED, Outcome.FAILED)
"""Outcomes whose reason names their cause, and not just how a process ended."""
_FAILURES = (*_WITH_A_CAUSE, Outcome.CRASHED, Outcome.HOST_OUT_OF_MEMORY)
_BY_BATCH = (Outcome.CRASHED, Outcome.HOST_OUT_OF_MEMORY)
"""Outcomes that a smaller batch may not have."""
_MOST_FAILURES = 4
"""A technique that has never run is given up after this many failed trials with it, and a pair that
has never run together after half as many, because each of the two has run."""
_PAIR_WORKS = 0.3
"""Probability that a pair of techniques works after one failed trial that it may explain."""


class Failures:
    """The choices and curves of a plan that ran or failed. A choice or a pair of choices works if
    any trial with it ran; otherwise it is given up after a few failed trials, at once if nothing
    else can explain the failure, or all failures with the same reason. A process that crashed names
    no cause, and its batch may be it: only this and larger batches of its curve are given up, and
    what it has is no suspect before another curve, or the smallest batch of this one, fails. Any
    other failure gives its curve up, and an unsupported one every candidate with the same unmet
    requirement."""

    def __init__(self, candidates: Sequence[Candidate], priors: TechniquePriors) -> None:
        numbers: Numbering[tuple[str, Choice]] = Numbering()
        choices = [[(axis, value) for axis, _, value in own.techniques] for own in candidates]
        self.choices: Indices = np.array([numbers.of(own) for own in choices], int)
        """Indices of each candidate's choices, shape (candidates, axes)."""
        self._similar = [similar_to(choice, numbers) for choice in numbers]
        """For each choice: the indices of choices with similar effects."""
        self._requires = [candidate.trials[0].settings.requires for candidate in candidates]
        untried = [priors.probability_to_work(axis, value) for axis, value in numbers]
        self._untried_probability: Array = np.array(untried)
        """Prior probability that a choice works, shape (choices,)."""
        self._compiles: Mask = np.array([compiles(axis, value) for axis, value in numbers])
        """Whether a choice compiles, shape (choices,)."""
        self._worked: set[Cause] = set()
        """What has run, so that it explains no failure."""
        self._failed: Counter[Cause] = Counter()
        """What has never run -> the failed trials that it may explain."""
        self._causes: dict[str, set[Cause]] = {}
        """Reason -> what can explain all failures with this reason."""
        self._unmet: set[str] = set()
        self._late: list[tuple[Indices, float]] = []
        """Choices and slot seconds of each trial that did not end in time."""
        self.curves = Numbering[object]().of(candidate.curve for candidate in candidates)
        """Index of each candidate's curve, shape (candidates,)."""
        self._sizes = np.array([candidate.samples for candidate in candidates])
        self._smallest_failed = np.full(len(candidates), np.inf)
        """By curve: the smallest micro-batch whose process crashed; 0 if another failure did."""
        self._crashed: dict[Cause, set[int]] = {}
        """What has never run -> the curves with it that crashed."""

    def note(self, index: int, record: TrialRecord) -> None:
        """Learn from the outcome of a candidate's trial."""
        if record.outcome in (Outcome.OK, Outcome.OUT_OF_MEMORY):
            self._worked.update(_causes(self.choices[index]))
            for cause in self._worked & self._failed.keys():
                del self._failed[cause]
            return
        is_late = record.outcome is Outcome.TIMED_OUT or record.rule == TOO_SLOW
        if is_late:
            self._late.append((self.choices[index], record.slot_seconds))
        if is_late or record.outcome in _FAILURES:
            reason = record.reason if record.outcome in _WITH_A_CAUSE else ""
            depends_on_batch = record.outcome in _BY_BATCH and not self._is_smallest(index)
            self._count_failure(index, reason, depends_on_batch=depends_on_batch)
            failed = self._sizes[index] if depends_on_batch else 0
            np.minimum.at(self._smallest_failed, self.curves[index], failed)
            if record.outcome is Outcome.UNSUPPORTED and record.rule:
                self._unmet.add(record.rule)

    def _is_smallest(self, index: int) -> bool:
        """Whether no candidate of the same curve has a smaller micro-batch."""
        on_curve = self.curves == self.curves[index]
        return bool(self._sizes[index] <= self._sizes[on_curve].min())

    def _count_failure(self, index: int, reason: str, *, depends_on_batch: bool) -> None:
        """Failures with the same ``reason`` share their cause. Without one, each has its own."""
        causes = {cause for cause in _causes(self.choices[index]) if self._is_suspect(cause)}
        if depends_on_batch:
            causes = {cause for cause in causes if self._crashes_elsewhere(cause, index)}
        self._failed.update(causes)
        if reason:
            shared = self._causes.get(reason, causes) & causes
            causes = self._causes[reason] = shared or causes
        if len(causes) == 1:
            # Everything else in these trials works, so nothing else can be the cause.
            self._failed.update(dict.fromkeys(causes, _MOST_FAILURES))

    def _crashes_elsewhere(self, cause: Cause, index: int) -> bool:
        """Note a crash on the candidate's curve; whether another curve with the cause crashed."""
        curves = self._crashed.setdefault(cause, set())
        curves.add(int(self.curves[index]))
        return len(curves) > 1

    def _is_suspect(self, cause: Cause) -> bool:
        # A pair with a choice that has never run is explained by this choice.
        each_worked = all((choice,) in self._worked for choice in cause)
        return cause not in self._worked and (len(cause) == 1 or each_worked)

    @property
    def given_up(self) -> Mask:
        """Whether a candidate is given up, shape (candidates,)."""
        given_up = self._sizes >= self._smallest_failed[self.curves]
        for cause, count in self._failed.items():
            if count >= _MOST_FAILURES // len(cause):
                given_up |= self._has(cause)
        if self._unmet:
            given_up |= [not self._unmet.isdisjoint(requires) for requires in self._requires]
        return np.asarray(given_up)

    @property
    def _unproven(self) -> Mask:
        """Whether no trial with a choice has run yet, shape (choices,)."""
        return np.array([(choice,) not in self._worked for choice in range(len(self._similar))])

    @property
    def probability_of_choices(self) -> Array:
        """Probability that each choice works, shape (choices,); 1 once a trial with it has run."""
        return np.where(self._unproven, self._untried_probability, 1.0)

    def probability_to_work(self) -> Array:
        """Probability that each candidate runs, shape (candidates,): all its choices must work."""
        probability = self.probability_of_choices[self.choices].prod(axis=1)
        for cause in self._failed:
            if len(cause) == 2:
                probability[self._has(cause)] *= _PAIR_WORKS
        return np.asarray(probability)

    def late_seconds(self) -> Array:
        """Slot time to be expected after trials that did not end in time, shape (candidates,). Any
        choice of such a trial that has never run, or is similar to one, may be the cause, so a
        candidate with some of them is expected to take the same share of the trial's time. A
        compiler among them is the cause."""
        unproven = self._unproven
        seconds = np.zeros(len(self.choices))
        for choices, taken in self._late:
            suspects = choices[unproven[choices]]
            compilers = suspects[self._compiles[suspects]]
            suspects = (compilers if len(compilers) else suspects).tolist()
            if suspects:
                similar = itertools.chain.from_iterable(self._similar[own] for own in suspects)
                possible = [*suspects, *(own for own in similar if unproven[own])]
                share = np.isin(self.choices, possible).sum(axis=1) / len(suspects)
                seconds = np.maximum(seconds, share * taken)
        return seconds

    def _has(self, cause: Cause) -> Mask:
        """Whether each candidate has all choices of a cause, shape (candidates,)."""
        return np.asarray(np.isin(self.choices, cause).sum(axis=1) == len(cause))


def _causes(choices: Indices) -> Iterator[Cause]:
    """A candidate's choices and all pairs of them."""
    ascending = sorted(choices.tolist())
    for size in (1, 2):
        yield from itertools.combinations(ascending, size)
