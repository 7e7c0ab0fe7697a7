"""Replays one search on one draw of the simulated decoder, and judges its picks."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from jobs.techniques import Variant
from orchestrator.planning.config import load_config
from orchestrator.planning.tune_space.space import Goal, TuneSpace, tune_space
from orchestrator.prediction.unsupported import unpredictable
from orchestrator.running.tune_run import SEARCH_SHARE
from orchestrator.search.best.search import BestSearch
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.memory.prediction_shortlist import prediction_shortlist
from orchestrator.storage.search_summary import BudgetResult
from orchestrator.units import GIB
from tests.benchmarks.technique_priors import RESULTS, priors_from, runs_in, shape_of
from tests.benchmarks.tuned.decoder import RUN, Decoder, Truth, record_of, recorded_curves

CONFIG = Path(__file__).parents[3] / "configs" / "llm_1b.yaml"
MISSING = ("package:flash_attn", "package:flash_attn_interface", "package:kernels")
"""What the simulated machine lacks, besides a newer transformers."""
_PREDICTION_ERROR = 0.01
_PREDICTIONS_PER_SECOND = 1.5
"""How many predictions come while trials run: four processes, a few seconds for each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What is replayed."""

    minutes: float
    noise: float
    gib: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcomes:
    """What one replay found. Tuples have an entry for each budget."""

    trials: int
    speeds: tuple[float, ...]
    """True speed of each pick; 0 without one."""
    best: tuple[float, ...]
    is_as_recorded: bool
    claims: tuple[tuple[float, float], ...]
    """The gain that was still possible as the search said, and the true one."""
    slowest_choice: float
    """Processor seconds of the longest choice of a next trial."""

    @property
    def worst_regret(self) -> float:
        """The largest share of the best speed that a pick lacks."""
        pairs = zip(self.speeds, self.best, strict=True)
        return max(1 - speed / best for speed, best in pairs)


@cache
def space() -> TuneSpace:
    """The space that `tune` has for the recorded model on such a machine."""
    config = load_config(CONFIG)
    return tune_space(config, Goal(), has_gpu=True, is_missing=_is_missing)


def _is_missing(variant: Variant) -> bool:
    return bool({*MISSING, "transformers>=5.23"}.intersection(variant.requires))


@cache
def other_models() -> TechniquePriors:
    """What all recorded runs of other models say."""
    return priors_from(runs_in(RESULTS), without=shape_of(RUN))


@cache
def predictable() -> tuple[TrialSpec, ...]:
    """The trials that `tune` predicts, in order."""
    trials = prediction_shortlist(space().plan.trials)
    return tuple(trial for trial in trials if not unpredictable(trial))


@cache
def truths(seed: int) -> Mapping[str, Truth]:
    """Trial id -> what it does, for one draw."""
    decoder = Decoder(seed=seed)
    return {trial.trial_id: decoder.truth(trial.choices) for trial in space().plan.trials}


class Machine:
    """Runs trials of a simulated decoder, and predicts memory meanwhile."""

    def __init__(self, seed: int, noise: float) -> None:
        self._truths = truths(seed)
        self._generator = random.Random(f"noise {seed}")
        self._noise = noise
        self._builds: set[str] = set()
        self._common_error = self._generator.gauss(0.0, _PREDICTION_ERROR)
        self.predicted: dict[str, float] = {}
        self.spent = 0.0
        self.records: dict[str, TrialRecord] = {}

    def run(self, trial: TrialSpec) -> TrialRecord:
        """Measure a trial."""
        factor = max(0.2, self._generator.gauss(1.0, self._noise))
        record = record_of(trial, self._truths[trial.trial_id], factor, builds=self._builds)
        self.spent += record.slot_seconds
        self.records[trial.trial_id] = record
        self._predict(int(self.spent * _PREDICTIONS_PER_SECOND))
        return record

    def _predict(self, count: int) -> None:
        for trial in predictable()[len(self.predicted) : count]:
            error = self._common_error + self._generator.gauss(0.0, _PREDICTION_ERROR / 2)
            memory = self._truths[trial.trial_id].memory_bytes
            self.predicted[trial.trial_id] = memory * (1 + error)


def best_search(setting: Setting, machine: Machine) -> BestSearch:
    """The search of `tune`, which knows only other models."""
    return BestSearch(
        space().plan.trials,
        budgets=[gib * GIB for gib in setting.gib],
        baseline=space().config.baseline,
        predicted_bytes=machine.predicted,
        priors=other_models(),
        accounts_for_plan=False,
        slot_seconds=60 * setting.minutes * SEARCH_SHARE,
    )


def replayed(setting: Setting, seed: int) -> Outcomes:
    """Replay the search on one draw of the decoder."""
    machine = Machine(seed, setting.noise)
    search = best_search(setting, machine)
    limit = 60 * setting.minutes * SEARCH_SHARE
    slowest = 0.0
    while machine.spent < limit:
        began = time.process_time()
        trial = search.ask()
        slowest = max(slowest, time.process_time() - began)
        if trial is None:
            break
        search.tell(machine.run(trial))
    return _judged(setting, search, machine, seed, slowest)


def _judged(
    setting: Setting, search: BestSearch, machine: Machine, seed: int, slowest: float
) -> Outcomes:
    speeds = [_pick_speed_of(result, truths(seed)) for result in search.results()]
    best = [_best_speed(seed, gib * GIB) for gib in setting.gib]
    recorded = [recorded_speed(gib * GIB) for gib in setting.gib]
    claims = []
    for result, speed in zip(search.results(), speeds, strict=True):
        if result.gain_at_most is not None and speed:
            left = _best_speed(seed, result.budget_bytes or 0, frozenset(machine.records))
            claims.append((result.gain_at_most, max(0.0, left / speed - 1)))
    # One percent is the wanted regret, and the noise of a trial.
    as_recorded = [speed >= 0.99 * other for speed, other in zip(speeds, recorded, strict=True)]
    return Outcomes(
        trials=len(machine.records),
        speeds=tuple(speeds),
        best=tuple(best),
        is_as_recorded=all(as_recorded),
        claims=tuple(claims),
        slowest_choice=slowest,
    )


def _pick_speed_of(result: BudgetResult, known: Mapping[str, Truth]) -> float:
    """The true speed of the pick that the search names; 0 without one."""
    if result.pick is None:
        return 0.0
    return speed_of(space_trials()[result.pick.trial_id], known)


def speed_of(trial: TrialSpec, known: Mapping[str, Truth]) -> float:
    """Samples per second without noise; 0 for a trial that does not run."""
    seconds = known[trial.trial_id].seconds
    if not seconds:
        return 0.0
    return trial.micro_batch / seconds


@cache
def space_trials() -> Mapping[str, TrialSpec]:
    """Trial id -> the trial."""
    return {trial.trial_id: trial for trial in space().plan.trials}


@cache
def _best_speed(seed: int, budget: int, without: frozenset[str] = frozenset()) -> float:
    """The fastest of the whole space within a budget, without some of its trials."""
    known = truths(seed)
    fitting = []
    for trial in space().plan.trials:
        if known[trial.trial_id].memory_bytes <= budget and trial.trial_id not in without:
            fitting.append(trial)
    return max(speed_of(trial, known) for trial in fitting)


def recorded_speed(budget: int) -> float:
    """The fastest row of the recorded run within a budget."""
    speeds = [0.0]
    for curve in recorded_curves().values():
        rows = zip(curve.sizes, curve.seconds, curve.memory_bytes, strict=True)
        speeds += [size / seconds for size, seconds, memory in rows if memory <= budget]
    return max(speeds)
