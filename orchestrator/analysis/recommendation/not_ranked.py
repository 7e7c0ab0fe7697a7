"""Why measured configurations are not ranked: each has exactly one reason."""

import enum
import math
from collections.abc import Mapping

from jobs.techniques.sample_kind import workload_of
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.grouping import grouped
from orchestrator.analysis.recommendation.offers import Offer, as_measured
from orchestrator.analysis.recommendation.ranking import Constraints, Rankings


class Reason(enum.StrEnum):
    """Why a configuration is not ranked. The first that holds counts."""

    OTHER_SAMPLES = "other_samples"
    """Its samples are others, such as longer or packed ones, so no speed per sample compares."""
    OTHER_RECIPE = "other_recipe"
    """It learns something else."""
    WRONG_LOSSES = "wrong_losses"
    NO_FIGURE = "no_figure"
    """The objective's figure was not measured."""
    OTHER_BATCH = "other_batch"
    """It cannot serve the effective batch, or a configuration with more accumulation does."""
    MEMORY = "memory"
    """It does not fit the budget."""


def not_ranked(
    rankings: Rankings, constraints: Constraints
) -> Mapping[Reason, list[Configuration]]:
    """Reason -> the configurations that the ranking lacks for it; those of no reason are ranked."""
    ranked = _used(rankings.under(constraints).ranked(constraints.memory_bytes))
    serving = _used(rankings.serving(constraints.effective_batch))

    def reason(configuration: Configuration) -> Reason | None:
        # What a ranked offer rests on counts, a row with a wrong loss scale, too.
        if configuration in ranked:
            return None
        offer = as_measured(configuration)
        if not constraints.allow_recipe(configuration.training_recipe, rankings.recipe):
            other = constraints.other_samples(configuration.training_recipe, rankings.recipe)
            return Reason.OTHER_SAMPLES if other else Reason.OTHER_RECIPE
        if configuration.trains_wrongly:
            return Reason.WRONG_LOSSES
        if constraints.score(offer) == -math.inf:
            return Reason.NO_FIGURE
        return Reason.MEMORY if configuration in serving else Reason.OTHER_BATCH

    reasons = grouped(rankings.configurations, reason)
    return {kind: reasons[kind] for kind in Reason if kind in reasons}


def _used(offers: list[Offer]) -> set[Configuration | None]:
    return {own for offer in offers for own in (offer.measured, offer.evidence)}


def best_of_other_samples(rankings: Rankings, constraints: Constraints) -> tuple[Offer, ...]:
    """The pick of each kind of sample that cannot be compared; most tokens per second first."""
    picks = []
    recipes = {own.training_recipe: None for own in rankings.configurations}
    for members in grouped(recipes, workload_of).values():
        if not constraints.other_samples(members[0], rankings.recipe):
            continue
        found = [rankings.under(constraints, own).pick(constraints.memory_bytes) for own in members]
        offers = [offer for offer in found if offer is not None]
        if offers:
            picks.append(max(offers, key=constraints.score))
    return tuple(sorted(picks, key=_tokens_per_second, reverse=True))


def _tokens_per_second(offer: Offer) -> float:
    return offer.configuration.real_tokens_per_second or 0.0
