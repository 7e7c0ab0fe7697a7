"""Optuna's multi-objective samplers as a search: the rival in the replays.

Least memory and most samples per second, for each training recipe.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import Trial, TrialState, create_trial

from jobs.record import TrialRecord
from jobs.spec import TrainingRecipe, TrialSpec
from orchestrator.search.base import Search
from orchestrator.search.model.candidates import Candidate, candidates_of
from orchestrator.search.model.measurements import Measurement, measurement_of

Sampler = Literal["tpe", "nsga2"]
_SAMPLERS = {"tpe": optuna.samplers.TPESampler, "nsga2": optuna.samplers.NSGAIISampler}
_MAX_PROPOSALS = 10
"""Proposals in a row that are not in the plan or were made before; then a random candidate is
measured."""


class OptunaSearch(Search):
    """Measures every candidate in the order in which Optuna proposes them.

    Fronts are drawn within training recipes, so each recipe has a study of its own. The study of
    which the smallest share was measured is asked next.
    """

    def __init__(
        self, trials: Iterable[TrialSpec], *, sampler: Sampler = "tpe", seed: int = 0
    ) -> None:
        # Optuna prints a line for every study to stderr, unless its own filter is set.
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._candidate_of: dict[str, Candidate] = {}
        by_recipe: dict[TrainingRecipe, list[Candidate]] = {}
        for candidate in candidates_of(trials):
            self._candidate_of.update(dict.fromkeys(candidate.trial_ids, candidate))
            by_recipe.setdefault(candidate.training_recipe, []).append(candidate)
        self._studies = {}
        for number, (recipe, candidates) in enumerate(by_recipe.items()):
            self._studies[recipe] = _Study(candidates, sampler, seed + number)
        self._queue: dict[str, TrialSpec] = {}
        """The open trials of candidates that were proposed: repeats stay together."""
        self._records: dict[Candidate, list[TrialRecord]] = {}
        self._taken: set[str] = set()
        """Ids of trials that were asked for or have a record."""

    def ask(self) -> TrialSpec | None:
        if not self._queue and not self.exhausted:
            waiting = [study for study in self._studies.values() if study.waiting]
            self._begin(min(waiting, key=_share_proposed).propose())
        if not self._queue:
            return None
        trial_id = next(iter(self._queue))
        self._taken.add(trial_id)
        return self._queue.pop(trial_id)

    def tell(self, record: TrialRecord) -> None:
        candidate = self._candidate_of.get(record.trial_id)
        if candidate is None:
            return
        study = self._studies[candidate.training_recipe]
        if candidate in study.waiting:
            del study.waiting[candidate]
            self._begin(candidate)
        self._taken.add(record.trial_id)
        self._queue.pop(record.trial_id, None)
        records = self._records.setdefault(candidate, [])
        if all(own.trial_id != record.trial_id for own in records):
            records.append(record)
            if len(records) == len(candidate.trials):
                study.tell(candidate, measurement_of(records))

    @property
    def exhausted(self) -> bool:
        return not self._queue and not any(study.waiting for study in self._studies.values())

    def skipped(self) -> Iterable[TrialRecord]:
        return ()

    def pending(self) -> Iterable[TrialSpec]:
        waiting = [own for study in self._studies.values() for own in study.waiting]
        return [*self._queue.values(), *(trial for own in waiting for trial in own.trials)]

    @property
    def studies(self) -> tuple[_Study, ...]:
        """One per training recipe."""
        return tuple(self._studies.values())

    def _begin(self, candidate: Candidate) -> None:
        for trial_id, trial in zip(candidate.trial_ids, candidate.trials, strict=True):
            if trial_id not in self._taken:
                self._queue[trial_id] = trial


class _Study:
    """Optuna's study of one training recipe. A parameter is the number of a value among its axis's
    values."""

    def __init__(self, candidates: Sequence[Candidate], sampler: Sampler, seed: int) -> None:
        self.waiting = dict.fromkeys(candidates)
        self.size = len(candidates)
        self._study = optuna.create_study(
            directions=["minimize", "maximize"], sampler=_SAMPLERS[sampler](seed=seed)
        )
        self._distributions, parameters = _space(candidates)
        self._parameters = dict(zip(candidates, parameters, strict=True))
        self._candidate_at = {tuple(own.values()): at for at, own in self._parameters.items()}
        self._proposed: dict[Candidate, Trial] = {}
        self._values: dict[Candidate, tuple[float, float] | None] = {}
        self._random = random.Random(seed)

    def propose(self) -> Candidate:
        """The sampler's next candidate; none is proposed twice."""
        for _ in range(_MAX_PROPOSALS):
            trial = self._study.ask(self._distributions)
            parameters = tuple(trial.params[axis] for axis in self._distributions)
            candidate = self._candidate_at.get(parameters)
            if candidate in self.waiting:
                break
            self._finish(trial, self._values.get(candidate) if candidate else None)
        else:
            candidate = self._random.choice(list(self.waiting))
            self._study.enqueue_trial(self._parameters[candidate])
            trial = self._study.ask(self._distributions)
        assert candidate is not None
        del self.waiting[candidate]
        self._proposed[candidate] = trial
        return candidate

    def tell(self, candidate: Candidate, measurement: Measurement | None) -> None:
        """What was measured of a candidate, proposed or not; None if it failed."""
        values = None
        if measurement is not None:
            values = (measurement.memory_bytes, measurement.samples_per_second)
        self._values[candidate] = values
        trial = self._proposed.pop(candidate, None)
        if trial is not None:
            self._finish(trial, values)
            return
        self._study.add_trial(
            create_trial(
                state=TrialState.COMPLETE if values else TrialState.FAIL,
                values=values,
                params=self._parameters[candidate],
                distributions=self._distributions,
            )
        )

    @property
    def outcomes(self) -> list[tuple[str, tuple[float, ...] | None]]:
        """State and values of every trial that the study knows."""
        trials = self._study.get_trials(deepcopy=False)
        return [(own.state.name, tuple(own.values) if own.values else None) for own in trials]

    def _finish(self, trial: Trial, values: tuple[float, float] | None) -> None:
        self._study.tell(trial, values=values, state=None if values else TrialState.FAIL)


def _share_proposed(study: _Study) -> float:
    return 1 - len(study.waiting) / study.size


def _space(
    candidates: Sequence[Candidate],
) -> tuple[dict[str, BaseDistribution], list[dict[str, int]]]:
    """The axes on which candidates differ, and each candidate's parameters. Only sizes have an
    order."""
    choices = [_choices(candidate) for candidate in candidates]
    distributions: dict[str, BaseDistribution] = {}
    parameters: list[dict[str, int]] = [{} for _ in candidates]
    for axis in dict.fromkeys(axis for own in choices for axis in own):
        column = [own.get(axis) for own in choices]
        is_size = all(type(value) is int for value in column)
        values = sorted(set(map(repr, column)), key=int if is_size else None)
        if len(values) == 1:
            continue
        numbers = range(len(values))
        distributions[axis] = CategoricalDistribution(numbers)
        if is_size:
            distributions[axis] = IntDistribution(0, numbers[-1])
        for own, value in zip(parameters, column, strict=True):
            own[axis] = values.index(repr(value))
    return distributions, parameters


def _choices(candidate: Candidate) -> Mapping[str, object]:
    batch = {"micro_batch": candidate.micro_batch, "accumulation": candidate.accumulation}
    return {**candidate.trials[0].choices, **batch}
