"""Any of our searches as a Tune searcher: what a slot is told of the trials that it is to run next."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ray.tune.search import Searcher

from jobs.spec import to_json
from orchestrator.running.cluster.not_kept import NotKept
from orchestrator.running.cluster.roster import Roster
from orchestrator.running.nodes import Place
from orchestrator.running.session import Session


class SessionSearcher(NotKept, Searcher):
    """Any of our searches as a Tune searcher."""

    def __init__(self, session: Session, roster: Roster, places: Mapping[str, Place], anywhere: Place) -> None:
        super().__init__()
        self._session, self._roster = session, roster
        self._places, self._anywhere = places, anywhere

    def suggest(self, trial_id: str) -> Any:
        specs = self._session.next_trials()
        if not specs:
            return Searcher.FINISHED if self._session.finished else None
        place = self._places.get(specs[0].gpu_model, self._anywhere)
        model = specs[0].gpu_model
        return {
            "specs": [json.dumps(to_json(place.given(spec))) for spec in specs],
            "gpu_model": model,
            "expected_model": model or next(iter(self._places)),
            "seconds_left": _WhenSent(self._session.seconds_left),  # no two machines' clocks are compared
            "may_share": _WhenSent(lambda: self._roster.may_share(model)),
        }

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        return None  # the bookkeeper has told the session already


class _WhenSent:
    """A figure looked at when a trial is sent to its actor, which may be long after it was asked for."""

    def __init__(self, ask: Callable[[], float]) -> None:
        self._ask = ask

    def __reduce__(self) -> tuple[type[Any], tuple[Any]]:
        value = self._ask()
        return type(value), (value,)

    def __deepcopy__(self, memo: dict[int, Any]) -> _WhenSent:
        return self
