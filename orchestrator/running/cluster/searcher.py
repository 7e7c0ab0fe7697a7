"""Makes a Tune searcher of a session, and remembers which of our trials each Tune trial runs."""

from collections.abc import Mapping
from typing import Any

from ray.tune.search import Searcher

from jobs.spec import TrialSpec
from orchestrator.running.nodes import Placement
from orchestrator.running.session import Session

LOOK_SECONDS = 1.0
"""Pause between two looks of a Tune callback at the cluster or at its slots."""


class StatelessPickle:
    """Base of what Tune pickles to restore a run, without its state: records resume our runs."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class SessionSearcher(StatelessPickle, Searcher):
    """Asks the session whenever Tune has room for another trial. Tune asks ahead of time, and keeps
    copies of configs, so our trials are kept here, by Tune's id, until a slot is ready."""

    def __init__(self, session: Session, placements: Mapping[str, Placement]) -> None:
        """``placements``: GPU model of a trial ("" for any) -> where it runs; may change."""
        super().__init__()
        self._session = session
        self._placements = placements
        self._specs: dict[str, tuple[TrialSpec, ...]] = {}

    def suggest(self, trial_id: str) -> Any:
        """The config of a Tune trial, in plain values; None if there is no trial now."""
        specs = self._session.next_trials()
        if specs:
            self._specs[trial_id] = specs
            placement = self._placements[specs[0].gpu_model]
            return {"bundle": dict(placement.bundle), "label_selector": placement.label_selector}
        return Searcher.FINISHED if self._session.finished else None

    def start(self, trial_id: str) -> tuple[TrialSpec, ...]:
        """Start the trials of a Tune trial. Returns the trials for its slot to run."""
        specs = self._session.start(self._specs.get(trial_id, ()))
        self._specs[trial_id] = specs
        return tuple(self._placements[spec.gpu_model].applied_to(spec) for spec in specs)

    def forget(self, trial_id: str) -> list[TrialSpec]:
        """Take all trials from a Tune trial. Returns those that have no record yet."""
        specs = self._specs.pop(trial_id, ())
        return [spec for spec in specs if spec.trial_id in self._session.dispatched]

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Nothing: the Tune callback has already passed the record to the session."""
