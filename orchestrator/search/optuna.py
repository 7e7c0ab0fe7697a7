"""Optuna's multi-objective samplers as a search: least memory, most samples a second, for each kind of training."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.search.base import Search
from orchestrator.search.frontier.configurations import Configuration, configurations, measured

try:
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
    from optuna.trial import Trial, TrialState, create_trial
except ImportError as error:
    raise ImportError("search: optuna needs the package optuna: pip install optuna") from error

Sampler = Literal["tpe", "nsga2"]
_SAMPLERS = {"tpe": optuna.samplers.TPESampler, "nsga2": optuna.samplers.NSGAIISampler}
_DRAWS = 10
"""How often a sampler may propose what is not in the plan or was proposed before; then chance picks for it."""


class Optuna(Search):
    """Measures a ``share`` of the plan's configurations, those that Optuna proposes; the rest is skipped.

    The frontier is drawn within each kind of training, so each has a study of its own; they take turns, the one of
    which the smallest share was measured first.
    """

    def __init__(
        self,
        trials: Iterable[TrialSpec],
        *,
        sampler: Sampler = "tpe",
        share: float = 0.25,
        seed: int = 0,
    ) -> None:
        # Optuna announces every study on stderr; its own filter is the only way to be spared that.
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        planned = configurations(trials)
        self._configuration = {trial_id: one for one in planned for trial_id in one.trial_ids}
        self._planned, self._limit = len(planned), math.ceil(share * len(planned))
        kinds: dict[str, list[Configuration]] = {}
        for one in planned:
            kinds.setdefault(one.training, []).append(one)
        self._studies = {
            kind: _Study(own, sampler, seed + n) for n, (kind, own) in enumerate(kinds.items())
        }
        self._queue: dict[str, TrialSpec] = {}
        """What is left of the configurations that were begun: repeats stay together."""
        self._records: dict[Configuration, list[TrialRecord]] = {}
        self._taken: set[str] = set()

    def ask(self) -> TrialSpec | None:
        if not self._queue and not self._is_full:
            self._begin(
                min(
                    (study for study in self._studies.values() if study.waiting), key=_share_begun
                ).draw()
            )
        if not self._queue:
            return None
        trial_id = next(iter(self._queue))
        self._taken.add(trial_id)
        return self._queue.pop(trial_id)

    def tell(self, record: TrialRecord) -> None:
        configuration = self._configuration.get(record.trial_id)
        if configuration is None:
            return
        study, known = (
            self._studies[configuration.training],
            self._records.setdefault(configuration, []),
        )
        if configuration in study.waiting:
            del study.waiting[configuration]
            self._begin(configuration)
        self._taken.add(record.trial_id)
        self._queue.pop(record.trial_id, None)
        if record.trial_id not in [one.trial_id for one in known]:
            known.append(record)
            if len(known) == len(configuration.trials):
                found = measured(known)
                study.tell(
                    configuration, (found.memory_bytes, found.samples_per_second) if found else None
                )

    @property
    def exhausted(self) -> bool:
        return not self._queue and self._is_full

    def skipped(self) -> Iterable[TrialRecord]:
        reason = f"search: optuna measures {self._limit} of the {self._planned} configurations, and chose others"
        return [
            TrialRecord(spec=spec, outcome=Outcome.SKIPPED, rule="search_limit", reason=reason)
            for spec in (self._waiting() if self._is_full else ())
        ]

    def unasked(self) -> Iterable[TrialSpec]:
        return [*self._queue.values(), *(() if self._is_full else self._waiting())]

    @property
    def account(self) -> Mapping[str, Any]:
        return {
            "kind": "optuna",
            "planned": len(self._configuration),
            "measured": sum(map(len, self._records.values())),
            "skipped": {"search_limit": len(left)} if (left := list(self.skipped())) else {},
        }

    @property
    def _is_full(self) -> bool:
        left = sum(len(study.waiting) for study in self._studies.values())
        return not left or self._planned - left >= self._limit

    def _waiting(self) -> list[TrialSpec]:
        return [
            spec for study in self._studies.values() for one in study.waiting for spec in one.trials
        ]

    def _begin(self, configuration: Configuration) -> None:
        both = zip(configuration.trial_ids, configuration.trials, strict=True)
        self._queue |= {trial_id: spec for trial_id, spec in both if trial_id not in self._taken}


class _Study:
    """One kind of training: Optuna's study, over the places of each choice among its axis's values."""

    def __init__(self, own: Sequence[Configuration], sampler: Sampler, seed: int) -> None:
        self.waiting = dict.fromkeys(own)
        self.size = len(own)
        self._study = optuna.create_study(
            directions=["minimize", "maximize"], sampler=_SAMPLERS[sampler](seed=seed)
        )
        self._distributions, places = _space(own)
        self._places = dict(zip(own, places, strict=True))
        self._at = {tuple(place.values()): one for one, place in self._places.items()}
        self._out: dict[Configuration, Trial] = {}
        self._values: dict[Configuration, tuple[float, float] | None] = {}
        self._by_chance = random.Random(seed)

    def draw(self) -> Configuration:
        """The sampler's next configuration; none is drawn twice."""
        for _ in range(_DRAWS):
            trial = self._study.ask(self._distributions)
            chosen = self._at.get(tuple(trial.params[axis] for axis in self._distributions))
            if chosen in self.waiting:
                break
            self._finish(trial, self._values.get(chosen) if chosen else None)
        else:
            chosen = self._by_chance.choice(list(self.waiting))
            self._study.enqueue_trial(self._places[chosen])
            trial = self._study.ask(self._distributions)
        assert chosen is not None
        del self.waiting[chosen]
        self._out[chosen] = trial
        return chosen

    def tell(self, configuration: Configuration, values: tuple[float, float] | None) -> None:
        """Memory and speed of a configuration, drawn or not; None where it has none: it failed."""
        self._values[configuration] = values
        if (trial := self._out.pop(configuration, None)) is not None:
            self._finish(trial, values)
            return
        self._study.add_trial(
            create_trial(
                state=TrialState.COMPLETE if values else TrialState.FAIL,
                values=values,
                params=self._places[configuration],
                distributions=self._distributions,
            )
        )

    def _finish(self, trial: Trial, values: tuple[float, float] | None) -> None:
        self._study.tell(trial, values=values, state=None if values else TrialState.FAIL)


def _share_begun(study: _Study) -> float:
    return 1 - len(study.waiting) / study.size


def _space(
    own: Sequence[Configuration],
) -> tuple[dict[str, BaseDistribution], list[dict[str, int]]]:
    """The axes on which configurations differ, and where each stands on them; only sizes have an order."""
    chosen = [_choices(one) for one in own]
    distributions: dict[str, BaseDistribution] = {}
    places: list[dict[str, int]] = [{} for _ in own]
    for axis in dict.fromkeys(axis for choices in chosen for axis in choices):
        column = [choices.get(axis) for choices in chosen]
        is_size = all(type(value) is int for value in column)
        values = sorted(set(map(repr, column)), key=int if is_size else None)
        if len(values) > 1:
            last = len(values) - 1
            distributions[axis] = (
                IntDistribution(0, last) if is_size else CategoricalDistribution(range(last + 1))
            )
            for place, value in zip(places, column, strict=True):
                place[axis] = values.index(repr(value))
    return distributions, places


def _choices(one: Configuration) -> Mapping[str, object]:
    return {
        **one.trials[0].choices,
        "micro_batch": one.micro_batch,
        "accumulation": one.accumulation,
    }
