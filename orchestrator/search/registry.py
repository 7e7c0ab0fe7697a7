"""The searches that a sweep can name, and how one is built.

To add a search: its file with a ``Search``, its description in
``orchestrator.planning.search_options``, its name here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from jobs.spec import TrialSpec
from orchestrator.planning.settings import SweepConfig
from orchestrator.search.base import Search
from orchestrator.search.best.front import FrontierSearch
from orchestrator.search.best.search import BestSearch
from orchestrator.search.follow_ups import FollowUps
from orchestrator.search.grid import Grid
from orchestrator.search.model.memory.prediction_shortlist import prediction_shortlist


class MemoryPredictor(Protocol):
    """Predicts the memory of trials beside a search."""

    def of(self, choose: Callable[[], Sequence[TrialSpec]], gpu_model: str) -> Mapping[str, float]:
        """Trial -> bytes of device memory on a GPU model; the mapping grows later.

        ``choose`` returns the trials to predict. It is called when the predictions begin.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class RegisteredSearch:
    """How searches of one kind are built."""

    make: Callable[..., Search]
    """From trials, and by keyword the options of ``search_options``."""
    uses_predicted_memory: bool = False
    """Whether ``make`` also takes ``predicted_bytes``: trial -> predicted memory.

    The mapping may grow while the search runs."""
    uses_budgets: bool = False
    """Whether ``make`` also takes the sweep's ``budgets`` in bytes, and its ``baseline``."""
    prediction_shortlist: Callable[[Sequence[TrialSpec]], Sequence[TrialSpec]] = list
    """The trials whose memory is to be predicted, the most useful first. By default all."""


SEARCHES: Mapping[str, RegisteredSearch] = {
    "grid": RegisteredSearch(make=Grid),
    "frontier": RegisteredSearch(make=FrontierSearch, uses_predicted_memory=True),
    "best": RegisteredSearch(
        make=BestSearch,
        uses_predicted_memory=True,
        uses_budgets=True,
        prediction_shortlist=prediction_shortlist,
    ),
}
"""Kind -> how to build it, for every kind of ``search_options``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchFactory:
    """Builds the searches of a sweep, one per GPU model."""

    config: SweepConfig
    predictor: MemoryPredictor | None = None
    """None: memory is not predicted."""
    with_follow_ups: bool = False
    """Whether follow-ups come after each search. They need a GPU."""

    def build(self, trials: Sequence[TrialSpec], gpu_model: str) -> Search:
        """The search that the config names, over the trials of one GPU model.

        Follow-ups come after it if the factory has them.
        """
        choice = self.config.search
        registered = SEARCHES[choice.kind]
        options = choice.options
        # Only some kinds of searches use predicted memory.
        if registered.uses_predicted_memory and self.predictor is not None:
            options["predicted_bytes"] = self.predictor.of(
                partial(registered.prediction_shortlist, trials), gpu_model
            )
        if registered.uses_budgets:
            options["budgets"] = self.config.budgets
            options["baseline"] = self.config.baseline
            options["accounts_for_plan"] = not choice.is_space
        search = registered.make(trials, **options)
        if not self.with_follow_ups:
            return search
        return FollowUps(
            search,
            self.config.follow_up,
            budgets=self.config.budgets,
            baseline=self.config.baseline,
        )
