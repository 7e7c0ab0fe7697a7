"""Any of our searches as a Tune searcher: what a slot is told of the trials that it is to run next."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ray.tune.search import Searcher

from jobs.spec import TrialSpec, to_json
from orchestrator.running.cluster.membership import Roster
from orchestrator.running.cluster.not_kept import NotKept
from orchestrator.running.nodes import Place
from orchestrator.running.session import Session


class SessionSearcher(NotKept, Searcher):
    """Any of our searches as a Tune searcher."""

    def __init__(
        self, session: Session, roster: Roster, places: Mapping[str, Place], anywhere: Place
    ) -> None:
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
            "specs": _Specs(self._session, specs, place),
            "gpu_model": model,
            "expected_model": model or next(iter(self._places)),
            "seconds_left": _WhenSent(
                self._session.seconds_left
            ),  # no two machines' clocks are compared
            "may_share": _WhenSent(lambda: self._roster.may_share(model)),
        }

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        return None  # the bookkeeper has told the session already


class _WhenSent:
    """Something looked at when a trial is sent to its actor, which may be long after it was asked for."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._ask = ask

    def __reduce__(self) -> tuple[type[Any], tuple[Any]]:
        value = self._ask()
        return type(value), (value,)

    def __deepcopy__(self, memo: dict[int, Any]) -> _WhenSent:
        return self


class _Specs(_WhenSent):
    """Trials as JSON: those to be next, and from when they are sent those that the session has begun."""

    def __init__(self, session: Session, specs: Sequence[TrialSpec], place: Place) -> None:
        super().__init__(self._sent)
        self._session, self._specs, self._place = session, specs, place
        self._begun = False

    def __iter__(self) -> Iterator[str]:
        return (json.dumps(to_json(self._place.given(spec))) for spec in self._specs)

    def _sent(self) -> list[str]:
        if not self._begun:
            self._specs, self._begun = self._session.begins(self._specs), True
        return list(self)
