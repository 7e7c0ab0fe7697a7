"""The objective of a recommendation, and its constraints."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field

from jobs.spec import TrainingRecipe
from jobs.techniques.sample_kind import same_workload
from orchestrator.analysis.objectives import OBJECTIVES, Objective
from orchestrator.analysis.recommendation.candidates import Offer


@dataclass(frozen=True, kw_only=True, slots=True)
class Constraints:
    """The objective, and the constraints of a recommendation.

    One constraint always holds: the losses must not contradict their reference. Raises ValueError
    for a batch or a price that is no number above zero, and for a missing price.
    """

    memory_bytes: int | None = None
    """The most that the configuration may take."""
    effective_batch: int | None = None
    """Samples per optimizer step."""
    all_recipes: bool = False
    """Whether recipes that differ from the baseline's, such as LoRA, are ranked together with it.

    Recipes with other samples, such as longer sequences, are never ranked together.
    """
    objective: Objective = field(default_factory=lambda: OBJECTIVES["samples_per_second"])
    price_per_hour: float | None = None
    """Price of one GPU for an hour, in any currency."""

    def __post_init__(self) -> None:
        if self.effective_batch is not None and not _is_count(self.effective_batch):
            raise ValueError("effective_batch must be a whole number above zero")
        self.objective.check_price(self.price_per_hour)

    def score(self, candidate: Offer) -> float:
        """How good a candidate is: more is better, whatever the objective."""
        return self.objective.score(candidate.configuration, self.price_per_hour)

    def ratio(self, candidate: Offer, best: Offer | None) -> float | None:
        """A candidate's figure divided by that of the best; None if there is no best."""
        if best is None:
            return None
        # If less is better, both scores are negative. Their ratio is still that of the figures.
        return self.score(candidate) / self.score(best)

    def gains(self, candidate: Offer, best: Offer | None, enough: float) -> bool:
        """Whether a candidate is better than the best by more than a share; True without a best."""
        if best is None:
            return True
        # If less is better, scores are negative. So the share is taken of the absolute value.
        best_score = self.score(best)
        return self.score(candidate) - best_score > enough * abs(best_score)

    def allow_training(self, candidate: Offer, recipe: TrainingRecipe) -> bool:
        """Whether a candidate's recipe is ranked, and has a figure to be ranked by."""
        own = candidate.configuration.training_recipe
        # Samples of another length are another workload, whatever the recipe.
        has_recipe = own == recipe or (self.all_recipes and same_workload(own, recipe))
        return has_recipe and self.score(candidate) != -math.inf


def _is_count(value: int) -> bool:
    """Whether a value, which callers without a type checker give, is a whole number above zero."""
    try:
        return operator.index(value) > 0  # as numpy's integers are, too
    except TypeError:
        return False
