"""Which trials of the plan are open, outstanding or ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jobs.spec import TrialSpec
from orchestrator.search.model.candidates import Candidate


class PlanState:
    """A trial is open until it is asked for or has a record.

    It is outstanding from when it is asked for until its record.
    """

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._candidate_of: dict[str, Candidate] = {}
        """Trial -> its candidate."""
        for candidate in candidates:
            for trial_id in candidate.trial_ids:
                self._candidate_of[trial_id] = candidate
        self._outstanding: set[str] = set()
        self._ended: set[str] = set()

    @property
    def trial_count(self) -> int:
        """Trials of the plan."""
        return len(self._candidate_of)

    @property
    def ended_count(self) -> int:
        """Trials with a record."""
        return len(self._ended)

    @property
    def has_outstanding_trials(self) -> bool:
        """Whether a trial is outstanding."""
        return bool(self._outstanding)

    def candidate_of(self, trial_id: str) -> Candidate | None:
        """The candidate of a trial; None if the plan does not have it."""
        return self._candidate_of.get(trial_id)

    def outstanding_candidates(self) -> list[Candidate]:
        """The candidates with an outstanding trial."""
        # Two repeats of a candidate may be outstanding. A dict keeps it once.
        candidates = map(self._candidate_of.__getitem__, self._outstanding)
        return list(dict.fromkeys(candidates))

    def open_trials(self, candidate: Candidate) -> list[TrialSpec]:
        """The candidate's trials that are open."""
        trials = []
        for trial_id, trial in zip(candidate.trial_ids, candidate.trials, strict=True):
            if self._is_open(trial_id):
                trials.append(trial)
        return trials

    def is_open(self, candidate: Candidate) -> bool:
        """Whether a trial of the candidate is open."""
        return any(map(self._is_open, candidate.trial_ids))

    def take(self, trial_id: str) -> None:
        """The trial is asked for."""
        self._outstanding.add(trial_id)

    def give_back(self, trial_id: str) -> None:
        """The trial is open again."""
        self._outstanding.discard(trial_id)

    def end(self, trial_id: str) -> bool:
        """The trial has a record; False if it had one before."""
        is_first_record = trial_id not in self._ended
        self._outstanding.discard(trial_id)
        self._ended.add(trial_id)
        return is_first_record

    def open_trials_of(self, candidates: Iterable[Candidate]) -> list[TrialSpec]:
        """The open trials of these candidates."""
        trials: list[TrialSpec] = []
        for candidate in candidates:
            trials += self.open_trials(candidate)
        return trials

    def _is_open(self, trial_id: str) -> bool:
        return trial_id not in self._outstanding and trial_id not in self._ended
