"""What the best of a result changes against the user's own arguments, and what it gains."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

from jobs.techniques import AXES
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.environment_results import EnvironmentResults
from orchestrator.analysis.recommendation import Offer
from orchestrator.analysis.repeatability import difference_error
from orchestrator.labels import changed_label
from orchestrator.planning.tune_space.policy import USUAL
from orchestrator.planning.tune_space.values import usual_value


def fits(memory_bytes: float, budget: int | None) -> bool:
    """Whether a configuration fits a budget; None: any does."""
    return budget is None or memory_bytes <= budget


def advance(
    environment: EnvironmentResults, user: Offer, best: Offer, budget: int | None
) -> dict[str, Any]:
    """What the best changes and gains, as fields of ``TuneResult``; no gain over arguments that do
    not fit the budget."""
    before, after = user.configuration, best.configuration
    fields: dict[str, Any] = {
        "changes": changed_label(before.choices, after.choices),
        "differences": tuple(_differences(before, after)),
    }
    if fits(user.memory_bytes, budget):
        gain, error95, rounds = _gain(environment, before, after)
        fields |= {"gain": gain, "gain_rounds": rounds}
        if math.isfinite(error95):
            # The interval is that of the logarithm of a ratio. Without one, nothing is said.
            is_within_chance = abs(math.log(gain)) <= error95
            fields |= {"gain_error95": error95, "is_within_chance": is_within_chance}
    return fields


def _gain(
    environment: EnvironmentResults, before: Configuration, after: Configuration
) -> tuple[float, float, int]:
    """The ratio of two speeds, half its relative 95 % interval, and the interleaved rounds that it
    is of; 0 rounds: the search measured both once."""
    for own in environment.comparisons:
        if own.reference_id in before.trial_ids and own.trial_id in after.trial_ids:
            return own.ratio, own.ci95, own.rounds
    error = difference_error(before.speed_error, after.speed_error)
    return after.samples_per_second / before.samples_per_second, error.half_width95, 0


def _differences(before: Configuration, after: Configuration) -> Iterator[str]:
    """For each axis of their recipes on which they differ: what the best trains in words."""
    recipes = before.training_recipe.by_axis, after.training_recipe.by_axis
    for axis in dict.fromkeys(itertools.chain(*recipes)):
        value = after.choices.get(axis)
        if recipes[0].get(axis) != recipes[1].get(axis) and axis in AXES and value is not None:
            is_usual = value == usual_value(axis, before.choices.get(axis, ""))
            yield USUAL[axis].words if is_usual else AXES[axis].variant(value).doc
