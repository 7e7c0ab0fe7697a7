"""The simulated decoder under `tune`, which knows other models only: its space and its trials."""

import random
from functools import cache
from pathlib import Path

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.planning.config import load_config
from orchestrator.planning.tune_space.space import Goal, TuneSpace, tune_space
from orchestrator.prediction.unsupported import unpredictable
from orchestrator.running.tune_run import SEARCH_SHARE
from orchestrator.search.best.search import BestSearch
from orchestrator.search.model.memory.prediction_shortlist import prediction_shortlist
from orchestrator.units import GIB
from tests.benchmarks.recorded.runs import folders_below
from tests.benchmarks.technique_priors import RESULTS, priors_from, shape_of
from tests.benchmarks.tuned.decoder import RUN, record_of, recorded_curves, truth_of

CONFIG = Path(__file__).parents[3] / "configs" / "llm_1b.yaml"
MISSING = {
    "package:flash_attn",
    "package:flash_attn_interface",
    "package:kernels",
    "transformers>=5.23",
}
"""What the simulated machine lacks."""
_PREDICTION_ERROR = 0.01
_PREDICTIONS_PER_SECOND = 1.5
"""How many predictions come while trials run: four processes, a few seconds for each."""


@cache
def space() -> TuneSpace:
    """The space that `tune` has for the recorded model on such a machine."""

    return tune_space(load_config(CONFIG), Goal(), has_gpu=True, is_missing=MISSING.__contains__)


@cache
def predictable() -> tuple[TrialSpec, ...]:
    trials = prediction_shortlist(space().plan.trials)
    return tuple(trial for trial in trials if not unpredictable(trial))


class Machine:
    """Runs trials of a simulated decoder, and predicts memory meanwhile."""

    def __init__(self, seed: int, noise: float) -> None:
        self._seed = seed
        self._generator = random.Random(f"noise {seed}")
        self._noise = noise
        self._is_built = False
        self._common_error = self._generator.gauss(0.0, _PREDICTION_ERROR)
        self.predicted: dict[str, float] = {}
        self.spent = 0.0
        self.records: dict[str, TrialRecord] = {}

    def run(self, trial: TrialSpec) -> TrialRecord:
        factor = max(0.2, self._generator.gauss(1.0, self._noise))
        truth = truth_of(trial.choices, self._seed)
        record = record_of(trial, truth, factor, is_built=self._is_built)
        self._is_built |= truth.build_seconds > 0
        self.spent += record.slot_seconds
        self.records[trial.trial_id] = record
        self._predict(int(self.spent * _PREDICTIONS_PER_SECOND))
        return record

    def _predict(self, count: int) -> None:
        for trial in predictable()[len(self.predicted) : count]:
            error = self._common_error + self._generator.gauss(0.0, _PREDICTION_ERROR / 2)
            memory = truth_of(trial.choices, self._seed).memory_bytes
            self.predicted[trial.trial_id] = memory * (1 + error)


def best_search(machine: Machine, minutes: float) -> BestSearch:
    """The search of `tune` for three budgets, in so many GPU-minutes."""
    return BestSearch(
        space().plan.trials,
        budgets=[gib * GIB for gib in (24, 40, 80)],
        baseline=space().config.baseline,
        predicted_bytes=machine.predicted,
        priors=priors_from(folders_below([RESULTS]), without=shape_of(RUN)),
        accounts_for_plan=False,
        slot_seconds=60 * minutes * SEARCH_SHARE,
    )


def recorded_speed(budget: int) -> float:
    """The fastest row of the recorded run, an expert's grid, within a budget."""
    speeds = [0.0]
    for curve in recorded_curves().values():
        rows = zip(curve.sizes, curve.seconds, curve.memory_bytes, strict=True)
        speeds += [size / seconds for size, seconds, memory in rows if memory <= budget]
    return max(speeds)
