"""Other searches that know the facts of `search: best`: budgets, predicted memory, the training
recipe, and the recorded effects of techniques.

Optuna answers for one budget at a time, so each budget has a study, and the budgets take turns.
All studies get all records, with the memory of the budget as their constraint. The first trial for
a budget is a warm start: the configuration that the recorded effects expect to be the fastest among
those not predicted to exceed it.
"""

import math
import random
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from jobs.record import Outcome, TrialRecord
from jobs.spec import Choice, TrialSpec
from orchestrator.search.base import Search
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.effects.unrecorded import Effect

MICRO_BATCH = "micro_batch"
_PROPOSALS = 200
"""Proposals of a sampler that may be no open configuration; then one is drawn at random."""


class Rival(Search):
    """Measures one open configuration after the other; the kinds differ in how they choose it."""

    def __init__(
        self,
        trials: Iterable[TrialSpec],
        *,
        budgets: Sequence[int],
        baseline: Mapping[str, Choice],
        predicted_bytes: Mapping[str, float],
        priors: TechniquePriors,
        seed: int,
    ) -> None:
        self.trials = tuple(trials)
        self.budgets = sorted(budgets, reverse=True)
        self.baseline = baseline
        self.priors = priors
        self.seed = seed
        self.random = random.Random(seed)
        self.predicted = [predicted_bytes.get(trial.trial_id) for trial in self.trials]
        self.open = set(range(len(self.trials)))
        self.records: dict[int, TrialRecord] = {}
        self._number = {trial.trial_id: number for number, trial in enumerate(self.trials)}

    @abstractmethod
    def choose(self) -> int | None:
        """The number of an open trial; None to end the search."""

    def ask(self) -> TrialSpec | None:
        number = self.choose() if self.open else None
        if number is None:
            self.open.clear()
            return None
        self.open.remove(number)
        return self.trials[number]

    def tell(self, record: TrialRecord) -> None:
        self.records[self._number[record.trial_id]] = record

    @property
    def exhausted(self) -> bool:
        return not self.open

    def skipped(self) -> Iterable[TrialRecord]:
        return ()

    def pending(self) -> Iterable[TrialSpec]:
        return [self.trials[number] for number in self.open]

    @cached_property
    def axes(self) -> list[str]:
        """The axes on which the trials differ."""
        names = dict.fromkeys(axis for trial in self.trials for axis in trial.choices)
        return [
            axis for axis in names if len({repr(own.choices.get(axis)) for own in self.trials}) > 1
        ]

    def effects(self, number: int) -> list[Effect]:
        """The recorded effects of a trial's techniques, compared with the baseline."""
        effects = []
        for axis in self.axes:
            if axis != MICRO_BATCH:
                value = self.trials[number].choices[axis]
                effects.append(self.priors.between(axis, self.baseline.get(axis, value), value))
        return effects

    def speed(self, number: int) -> float | None:
        """The measured samples per second; None if the trial did not end ok."""
        record = self.records[number]
        if record.outcome is not Outcome.OK:
            return None
        return float(record.measurements["samples_per_second"])

    def memory(self, number: int) -> float:
        """The measured bytes; infinite if the trial did not end ok."""
        return float(self.records[number].measurements.get("device_peak_bytes", math.inf))


class InTurn(Rival):
    """Chooses for one budget after the other, among the trials that are not predicted to exceed
    it."""

    _turns = 0

    def choose(self) -> int | None:
        for _ in self.budgets:
            budget = self.budgets[self._turns % len(self.budgets)]
            self._turns += 1
            fitting = [own for own in sorted(self.open) if (self.predicted[own] or 0) <= budget]
            if fitting:
                return self.choose_for(budget, fitting)
        return None

    @abstractmethod
    def choose_for(self, budget: int, fitting: Sequence[int]) -> int:
        """One of the trials, for a budget."""


class RandomThatFits(InTurn):
    def choose_for(self, budget: int, fitting: Sequence[int]) -> int:
        return self.random.choice(fitting)


class OptunaSearch(InTurn):
    """A sampler of Optuna: ``gp`` or ``tpe``.

    ``startup`` trials, or one for each budget, come before those that the sampler proposes.
    """

    def __init__(self, trials: Iterable[TrialSpec], *, sampler: str, startup: int, **facts: Any):
        super().__init__(trials, **facts)
        self._sampler = sampler
        self._startup = startup
        optuna.logging.set_verbosity(optuna.logging.WARNING)

    def choose_for(self, budget: int, fitting: Sequence[int]) -> int:
        measured = [self.memory(own) for own in self.records]
        if self._turns <= len(self.budgets) and not any(own <= budget for own in measured):
            return max(fitting, key=self._expected)
        if len(self.records) < self._startup or math.isinf(min(measured)):
            return self.random.choice(fitting)
        return self._proposed(budget, fitting)

    def _expected(self, number: int) -> tuple[float, int]:
        """The recorded effects of the techniques first, then the micro-batch, if it fits."""
        known = self.predicted[number] is not None
        return (
            -sum(effect.log_time for effect in self.effects(number)),
            self.trials[number].micro_batch if known else 0,
        )

    def _proposed(self, budget: int, fitting: Sequence[int]) -> int:
        """The first proposal of the sampler that is one of the trials."""
        study = optuna.create_study(direction="maximize", sampler=self._new_sampler(fitting))
        measured = [speed for own in self.records if (speed := self.speed(own))]
        for own in self.records:
            # A trial that failed is as slow as any, and does not fit.
            excess = min(math.log(self.memory(own) / budget), 1.0)
            study.add_trial(
                create_trial(
                    value=math.log(self.speed(own) or min(measured)),
                    params=self._parameters[own],
                    distributions=self._distributions,
                    constraints={"memory": excess},
                )
            )
        wanted = {tuple(self._parameters[own].values()): own for own in fitting}
        for _ in range(_PROPOSALS):
            trial = study.ask(self._distributions)
            proposed = wanted.get(tuple(trial.params[axis] for axis in self._distributions))
            if proposed is not None:
                return proposed
            study.tell(trial, state=TrialState.FAIL)
        return self.random.choice(fitting)

    def _new_sampler(self, fitting: Sequence[int]) -> optuna.samplers.BaseSampler:
        seed = self.seed * 1000 + len(self.records)
        if self._sampler == "tpe":
            return optuna.samplers.TPESampler(seed=seed, n_startup_trials=1, multivariate=True)
        sampler = _AmongTrials(seed=seed, n_startup_trials=1)
        sampler.parameters = [self._parameters[own] for own in fitting]
        sampler.is_sure = np.array([self.predicted[own] is not None for own in fitting])
        return sampler

    @cached_property
    def _distributions(self) -> dict[str, BaseDistribution]:
        """A parameter is the number of a value among those of its axis; only sizes have an
        order."""
        distributions: dict[str, BaseDistribution] = {}
        for axis in self.axes:
            count = len(self._values(axis))
            distributions[axis] = CategoricalDistribution(range(count))
            if axis == MICRO_BATCH:
                distributions[axis] = IntDistribution(0, count - 1)
        return distributions

    def _values(self, axis: str) -> list[Choice]:
        values = {repr(trial.choices[axis]): trial.choices[axis] for trial in self.trials}
        return sorted(values.values(), key=lambda own: (isinstance(own, str), own))

    @cached_property
    def _parameters(self) -> list[dict[str, int]]:
        numbers = {
            axis: {repr(value): at for at, value in enumerate(self._values(axis))}
            for axis in self._distributions
        }
        return [
            {axis: numbers[axis][repr(trial.choices[axis])] for axis in numbers}
            for trial in self.trials
        ]


class _AmongTrials(optuna.samplers.GPSampler):
    """Optuna's Gaussian process with its acquisition computed for the open trials alone, because
    most combinations of values are no trial of the plan."""

    parameters: Sequence[dict[str, int]]
    is_sure: np.ndarray
    """Trials that are predicted to fit need no probability to fit."""

    def _optimize_acqf(self, acqf: Any, best_params: np.ndarray | None) -> np.ndarray:
        space = acqf.search_space
        points = space.get_normalized_params(self.parameters, self.parameters)
        values = acqf.eval_acqf_no_grad(points)
        if hasattr(acqf, "_constraints_acqf_list"):
            values = np.where(self.is_sure, acqf._acqf.eval_acqf_no_grad(points), values)
        best: np.ndarray = points[int(np.argmax(values))]
        return best
