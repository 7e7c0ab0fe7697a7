"""Which trials of the plan are open, outstanding or ended."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from jobs.spec import Choice, TrialSpec
from orchestrator.search.model.arrays import Mask
from orchestrator.search.model.candidates import Candidate


class PlanState:
    """A trial is open until it is asked for, and then outstanding until its record."""

    def __init__(self, candidates: Sequence[Candidate], baseline: Mapping[str, Choice]) -> None:
        self._candidates = candidates
        self.candidate_of: dict[str, int] = {}
        """Trial -> its candidate, for all trials of the plan."""
        for index, candidate in enumerate(candidates):
            self.candidate_of.update(dict.fromkeys(candidate.trial_ids, index))
        self.by_similarity = _by_similarity(candidates, baseline)
        self.outstanding: set[str] = set()
        self.ended: set[str] = set()

    @property
    def outstanding_candidates(self) -> list[int]:
        """The candidate of each outstanding trial, ascending."""
        return sorted(self.candidate_of[trial_id] for trial_id in self.outstanding)

    @property
    def is_open(self) -> Mask:
        """Whether a candidate has an open trial, shape (candidates,)."""
        closed = self.outstanding | self.ended
        return np.array([not closed.issuperset(own.trial_ids) for own in self._candidates], bool)

    def open_trials(self, candidates: Iterable[int]) -> list[TrialSpec]:
        """The open trials of some candidates."""
        closed = self.outstanding | self.ended
        trials: list[TrialSpec] = []
        for index in candidates:
            candidate = self._candidates[index]
            by_id = zip(candidate.trial_ids, candidate.trials, strict=True)
            trials += [trial for trial_id, trial in by_id if trial_id not in closed]
        return trials

    def take(self, index: int) -> TrialSpec:
        """Ask for a candidate's first open trial, which is outstanding from now on."""
        trial = self.open_trials([index])[0]
        self.outstanding.add(trial.trial_id)
        return trial


def _by_similarity(candidates: Sequence[Candidate], baseline: Mapping[str, Choice]) -> list[int]:
    """All candidates: first by the number of the baseline's choices, then by micro-batch."""
    keys = []
    for index, candidate in enumerate(candidates):
        choices = candidate.trials[0].choices
        equal = sum(choices.get(axis) == value for axis, value in baseline.items())
        keys.append((-equal, candidate.micro_batch, index))
    return [index for _, _, index in sorted(keys)]
