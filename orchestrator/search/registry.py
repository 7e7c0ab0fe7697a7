"""The searches that a sweep can name, and how one is built.

To add a search: its file with a ``Search``, its description in
``orchestrator.planning.keys.search_options``, its name here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from jobs.spec import TrialSpec
from orchestrator.planning.settings import SweepConfig
from orchestrator.search.base import Grid, Search
from orchestrator.search.best.front import FrontierSearch
from orchestrator.search.best.search import BestSearch
from orchestrator.search.follow_ups import FollowUps
from orchestrator.search.model.memory.prediction_shortlist import prediction_shortlist

Trials = Sequence[TrialSpec]
PredictedBytes = Mapping[str, float]
"""Trial -> bytes of device memory. It may grow while the search runs."""
PredictedSeconds = Mapping[str, float]
"""Trial -> seconds of a sample. It may grow, too."""


class MemoryPredictor(Protocol):
    """Predicts the memory of trials beside a search."""

    def of(self, choose: Callable[[], Trials], gpu_model: str) -> PredictedBytes:
        """The memory on a GPU model of the trials that ``choose`` returns when the predictions
        begin."""

    def seconds_on(self, gpu_model: str) -> PredictedSeconds:
        """The seconds of a sample of these trials."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RegisteredSearch:
    """How searches of one kind are built."""

    make: Callable[[Trials, SweepConfig, PredictedBytes, PredictedSeconds], Search]
    to_predict: Callable[[Trials], Trials] | None = None
    """The trials whose memory is to be predicted, the most useful first. None: of no trial."""


def _frontier(
    trials: Trials, config: SweepConfig, predicted_bytes: PredictedBytes, _: PredictedSeconds
) -> Search:
    return FrontierSearch(trials, predicted_bytes=predicted_bytes, **config.search.options)


def _best(
    trials: Trials,
    config: SweepConfig,
    predicted_bytes: PredictedBytes,
    predicted_seconds: PredictedSeconds,
) -> Search:
    return BestSearch(
        trials,
        budgets=config.budgets,
        baseline=config.baseline,
        accounts_for_plan=not config.search.is_space,
        predicted_bytes=predicted_bytes,
        predicted_seconds=predicted_seconds,
        **config.search.options,
    )


SEARCHES: Mapping[str, RegisteredSearch] = {
    "grid": RegisteredSearch(make=lambda trials, *_: Grid(trials)),
    "frontier": RegisteredSearch(make=_frontier, to_predict=list),
    "best": RegisteredSearch(make=_best, to_predict=prediction_shortlist),
}
"""Kind -> how to build it, for every kind of ``search_options``."""


def build_search(
    trials: Trials,
    config: SweepConfig,
    *,
    gpu_model: str = "",
    predictor: MemoryPredictor | None = None,
    with_follow_ups: bool = False,
) -> Search:
    """The search that the config names, over the trials of one GPU model. Without a ``predictor``,
    memory is not predicted. Follow-ups need a GPU."""
    registered = SEARCHES[config.search.kind]
    predicted_bytes: PredictedBytes = {}
    predicted_seconds: PredictedSeconds = {}
    if predictor is not None and registered.to_predict is not None:
        predicted_bytes = predictor.of(partial(registered.to_predict, trials), gpu_model)
        predicted_seconds = predictor.seconds_on(gpu_model)
    search = registered.make(trials, config, predicted_bytes, predicted_seconds)
    if not with_follow_ups:
        return search
    return FollowUps(search, config.follow_up, budgets=config.budgets, baseline=config.baseline)
