"""Makes a Tune searcher of any search, and remembers which of our trials each Tune trial runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.tune.search import Searcher

from jobs.spec import TrialSpec
from orchestrator.running.nodes import Placement
from orchestrator.running.session import Session


class StatelessPickle:
    """Base of the objects that Tune pickles to restore a run.

    Their state is left out, because our runs are resumed from their records.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {}


class TrialsOnTune(StatelessPickle):
    """Which of our trials each Tune trial runs.

    Tune asks for trials ahead of time, and keeps copies of their configs. So a config only says
    where the trials may run. The trials themselves are kept here, under the id of the Tune trial.
    They are given out first, and start when a slot is ready.
    """

    def __init__(self, session: Session, placements: Mapping[str, Placement]) -> None:
        """``placements``: GPU model of a trial ("" for any) -> where it runs; may change."""
        self._session = session
        self._placements = placements
        self._specs: dict[str, tuple[TrialSpec, ...]] = {}

    def give_out(self, tune_trial_id: str) -> Placement | None:
        """Give the session's next trials to a Tune trial. None if there are none now."""
        specs = self._session.next_trials()
        if not specs:
            return None
        self._specs[tune_trial_id] = specs
        return self._placements[specs[0].gpu_model]

    def start(self, tune_trial_id: str) -> tuple[TrialSpec, ...]:
        """Start the trials of a Tune trial. Returns the trials for its slot to run."""
        specs = self._session.start(self._specs.get(tune_trial_id, ()))
        self._specs[tune_trial_id] = specs
        return tuple(self._placements[spec.gpu_model].applied_to(spec) for spec in specs)

    def take_back(self, tune_trial_id: str) -> list[TrialSpec]:
        """Take all trials from a Tune trial. Returns those that have no record yet."""
        specs = self._specs.pop(tune_trial_id, ())
        return [spec for spec in specs if spec.trial_id in self._session.given_out]

    def forget(self, tune_trial_id: str) -> None:
        """The Tune trial has ended."""
        self._specs.pop(tune_trial_id, None)


class SessionSearcher(StatelessPickle, Searcher):
    """Asks the session whenever Tune has room for another trial."""

    def __init__(self, session: Session, trials: TrialsOnTune) -> None:
        super().__init__()
        self._session = session
        self._trials = trials

    def suggest(self, trial_id: str) -> Any:
        """The config of a Tune trial, in plain values."""
        placement = self._trials.give_out(trial_id)
        if placement is None:
            if self._session.finished:
                return Searcher.FINISHED
            return None
        return {
            "bundle": dict(placement.bundle),
            "label_selector": placement.label_selector,
        }

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Nothing: the Tune callback has already passed the record to the session."""
