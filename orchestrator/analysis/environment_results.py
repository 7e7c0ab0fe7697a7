"""The results of one environment. Configurations are ranked within an environment only."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any

from jobs.spec import Choice, TrainingRecipe
from jobs.techniques.sample_kind import Workload, workload_of
from orchestrator.analysis.baseline import baseline_choices, is_baseline
from orchestrator.analysis.budget_picks import BudgetPick, best_in_budgets
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.follow_up_results import (
    CapCheck,
    PairedComparison,
    cap_checks,
    paired_comparisons,
)
from orchestrator.analysis.gradient_results import GradientResult, gradient_results
from orchestrator.analysis.loss_parity.equivalence import SameLosses
from orchestrator.analysis.pareto import fronts_by
from orchestrator.analysis.recommendation import LongestContext, Rankings, longest_contexts
from orchestrator.storage.run_metadata import RunMetadata
from orchestrator.storage.tables.rows import Row


@dataclass(frozen=True, kw_only=True)
class EnvironmentResults:
    """The configurations of one environment, and what follows from them."""

    environment_id: str
    environment: Mapping[str, Any]
    """GPU model, driver and versions."""
    run: RunMetadata
    configurations: tuple[Configuration, ...]
    follow_ups: tuple[Row, ...]
    """The trials that check or profile trials of the search."""
    memory_column: str
    recipe: TrainingRecipe
    """The training recipe that is ranked: the baseline's, or the nearest one with an ok row."""
    is_baseline_recipe: bool
    out_of_memory: tuple[Mapping[str, Choice], ...] = ()
    """Axis -> value, of the trials of the search that ran out of memory."""
    without_figures: int = 0
    """Trials of the search that ended ok, but without a speed or a memory to rank them by."""
    same_losses: Mapping[TrainingRecipe, SameLosses] = field(default_factory=dict)
    """Recipe that is ranked together with ``recipe`` -> the losses that justify that."""

    @property
    def hardware(self) -> str:
        """The name of the GPU; that of the processor if there is no GPU."""
        model = self.environment.get("gpu_model") or self.environment.get("cpu_model")
        return str(model or "unknown hardware")

    @cached_property
    def rankings(self) -> Rankings:
        """The configurations, ranked under any constraints; every decision comes from here."""
        return Rankings(self.configurations, self.recipe, self.cap_checks, self.comparisons)

    @property
    def device_bytes(self) -> float:
        """The GPU's whole memory; infinite if it is not known."""
        return self.environment.get("gpu_memory_bytes") or math.inf

    @cached_property
    def sound(self) -> tuple[Configuration, ...]:
        """The configurations that may be picked: nothing shows that they train wrongly."""
        return tuple(each for each in self.configurations if not each.trains_wrongly)

    @cached_property
    def fronts(self) -> Mapping[TrainingRecipe, tuple[Configuration, ...]]:
        """Training recipe -> its Pareto front of memory and speed, at any batch size."""
        recipe_of = attrgetter("training_recipe")
        fronts = fronts_by(self.sound, recipe_of)
        return {recipe: fronts.get(recipe, ()) for recipe in map(recipe_of, self.configurations)}

    @property
    def front(self) -> tuple[Configuration, ...]:
        """The front of the recipe that is ranked."""
        return self.fronts.get(self.recipe, ())

    @cached_property
    def front_across_recipes(self) -> tuple[Configuration, ...]:
        """The front of all recipes together that have the samples of the ranked one."""
        return self.workload_fronts.get(workload_of(self.recipe), ())

    @cached_property
    def workload_fronts(self) -> Mapping[Workload, tuple[Configuration, ...]]:
        """Workload -> the front of all recipes with these samples."""
        return fronts_by(self.sound, lambda each: workload_of(each.training_recipe))

    @cached_property
    def cap_checks(self) -> tuple[CapCheck, ...]:
        """Picks that ran again under a memory cap."""
        return cap_checks(self.follow_ups)

    @cached_property
    def comparisons(self) -> tuple[PairedComparison, ...]:
        """Tie-breaks between close configurations."""
        return paired_comparisons(self.follow_ups)

    @cached_property
    def gradient_results(self) -> Mapping[str, GradientResult]:
        """Trial -> what the comparison of its gradients found."""
        return gradient_results(self.follow_ups)

    def longest(
        self, memory_bytes: float | None = None, *, all_recipes: bool = False
    ) -> tuple[LongestContext, ...]:
        """The longest context in a budget, for each set of techniques; None: the whole GPU."""
        return longest_contexts(
            self.configurations,
            self.device_bytes if memory_bytes is None else memory_bytes,
            self.recipe,
            self.cap_checks,
            self.out_of_memory,
            all_recipes=all_recipes,
        )

    @cached_property
    def budget_picks(self) -> tuple[BudgetPick, ...]:
        """The fastest configuration in each memory budget."""
        return best_in_budgets(self.rankings, self.run.budgets)

    @property
    def picks(self) -> tuple[Configuration, ...]:
        """The pick of each budget, followed by the best of other recipes if that is faster."""
        return tuple(own for pick in self.budget_picks for own in pick.configurations)

    @cached_property
    def baseline(self) -> Mapping[str, Choice]:
        """Axis -> the value that techniques are compared with."""
        return baseline_choices(self.configurations, self.run.baseline)

    @cached_property
    def asked_baseline(self) -> Configuration | None:
        """What was asked for, as the user's own arguments; None: it has no ok row, and ``baseline``
        is another."""
        asked = self.run.baseline
        return next((own for own in self.configurations if is_baseline(own.choices, asked)), None)
