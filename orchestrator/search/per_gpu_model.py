"""One search for each GPU model of a cluster: every configuration once a model, and no model waits for another."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.search.base import Search


class PerModel(Search):
    """Each model's search has trials ``for_model``; ``slots`` says how many the model runs at once, and one more is
    given out so that no slot waits. What is known of one model says nothing of another: each is told of its own.
    """

    def __init__(self, searches: Mapping[str, Search], slots: Mapping[str, int]) -> None:
        self._searches, self._slots = searches, slots
        self._out: dict[str, set[str]] = {model: set() for model in searches}
        self._in_turns = ""
        """The model whose last trial was a turn of a comparison: one slot runs them all, one after another."""

    def ask(self) -> TrialSpec | None:
        ahead = sorted(self._slots, key=lambda model: len(self._out[model]) - self._slots[model])
        free = [model for model in ahead if len(self._out[model]) <= self._slots[model]]
        for model in dict.fromkeys([*filter(None, [self._in_turns]), *free]):
            if (spec := self._searches[model].ask()) is not None:
                self._out[model].add(spec.trial_id)
                self._in_turns = model if spec.follow_up and spec.follow_up.among else ""
                return spec
        return None

    def reconsider(self, spec: TrialSpec) -> TrialSpec | None:
        out = self._out[spec.gpu_model]
        out.discard(spec.trial_id)
        if (chosen := self._searches[spec.gpu_model].reconsider(spec)) is not None:
            out.add(chosen.trial_id)
        return chosen

    def tell(self, record: TrialRecord) -> None:
        model = record.spec.gpu_model
        if model in self._searches:
            self._out[model].discard(record.trial_id)
            self._searches[model].tell(record)

    @property
    def exhausted(self) -> bool:
        return all(search.exhausted for search in self._searches.values())

    def skipped(self) -> Iterable[TrialRecord]:
        return list(
            itertools.chain.from_iterable(search.skipped() for search in self._searches.values())
        )

    def unasked(self) -> Iterable[TrialSpec]:
        return list(
            itertools.chain.from_iterable(search.unasked() for search in self._searches.values())
        )

    @property
    def account(self) -> Mapping[str, Any]:
        return _together([search.account for search in self._searches.values()])


def side_by_side(searches: Mapping[str, Search], slots: Mapping[str, int]) -> Search:
    """As one search; the only one as it is."""
    return PerModel(searches, slots) if len(searches) > 1 else next(iter(searches.values()))


def for_model(trials: Iterable[TrialSpec], model: str) -> tuple[TrialSpec, ...]:
    """The same trials, each for one model of GPU; for whichever there is where it has no name."""
    return tuple(replace(spec, gpu_model=model) for spec in trials)


def _together(accounts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Counts added up; what a search found when it checked itself is of its own model, and left out."""
    told = [account for account in accounts if account]
    if len(told) < 2:
        return told[0] if told else {}
    rules = dict.fromkeys(rule for account in told for rule in account["skipped"])
    return {
        "kind": told[0]["kind"],
        "planned": sum(account["planned"] for account in told),
        "measured": sum(account["measured"] for account in told),
        "skipped": {
            rule: sum(account["skipped"].get(rule, 0) for account in told) for rule in rules
        },
    }
