"""What each constraint costs: what loosening it would gain, and what less memory would lose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.pareto import little_memory, pareto_front
from orchestrator.analysis.recommendation.candidates import Offer, as_measured
from orchestrator.analysis.recommendation.constraints import Constraints
from orchestrator.analysis.recommendation.ranking import Rankings
from orchestrator.analysis.recommendation.result import Alternative
from orchestrator.analysis.repeatability import NEARLY

WORTH_MENTIONING = 0.02
"""Loosening a constraint is mentioned if it gains more than this share."""
LESS_MEMORY = 0.8
"""A nearly as good one is mentioned if it needs at most this share of the best one's memory."""
REACH = 1.5
"""Batches up to this many times larger or smaller count as near."""
WORTH_ANOTHER_BATCH = 0.10
"""Another batch changes the training, so it is offered only for a gain above this.

It is the nearest batch on its side, below or above, to within the same share of the best there.
"""


def constraint_costs(
    rankings: Rankings, constraints: Constraints, ranked: Sequence[Offer]
) -> tuple[Alternative, ...]:
    """The costs of the constraints that are set.

    ``ranked`` are the candidates that meet all constraints, the best first.
    """
    best = next(iter(ranked), None)
    found: list[tuple[str, Offer]] = []
    # More memory is offered in two steps: the next larger card, and the largest gain.
    for candidate in _more_memory(rankings, constraints, best):
        found.append(("memory", candidate))
    for name, looser in _loosened(constraints):
        pick = rankings.under(looser).pick(constraints.memory_bytes)
        if pick is not None and constraints.gains(pick, best, WORTH_MENTIONING):
            found.append((name, pick))
    if best is not None:
        for candidate in _less_memory(constraints, best, ranked):
            found.append(("less memory", candidate))
    return tuple(_alternative(constraints, best, *each) for each in found)


def _alternative(
    constraints: Constraints, best: Offer | None, constraint: str, candidate: Offer
) -> Alternative:
    ratio = constraints.ratio(candidate, best)
    return Alternative(constraint=constraint, candidate=candidate, ratio=ratio)


def _loosened(constraints: Constraints) -> Iterator[tuple[str, Constraints]]:
    """(name of a constraint, all constraints without this one); memory is loosened in steps."""
    if constraints.effective_batch is not None:
        yield "effective_batch", replace(constraints, effective_batch=None)
    if not constraints.all_recipes:
        yield "recipe", replace(constraints, all_recipes=True)


def _more_memory(rankings: Rankings, constraints: Constraints, best: Offer | None) -> list[Offer]:
    """Two candidates beyond the memory limit: the smallest that gains enough, and the best."""
    if constraints.memory_bytes is None:
        return []
    better = []
    for candidate in rankings.under(constraints).ranked():
        is_beyond = candidate.memory_bytes > constraints.memory_bytes
        if is_beyond and constraints.gains(candidate, best, WORTH_MENTIONING):
            better.append(candidate)
    if not better:
        return []
    smallest = min(better, key=attrgetter("memory_bytes"))
    return [smallest] if smallest is better[0] else [smallest, better[0]]


def _less_memory(constraints: Constraints, best: Offer, ranked: Iterable[Offer]) -> list[Offer]:
    """The candidate with least memory that is nearly as good as the best, but much smaller."""
    # Both bounds are relative to the best.
    floor = constraints.score(best) - NEARLY * abs(constraints.score(best))
    ceiling = LESS_MEMORY * best.memory_bytes
    near = []
    for candidate in ranked:
        if constraints.score(candidate) >= floor and candidate.memory_bytes <= ceiling:
            near.append(candidate)
    return sorted(near, key=attrgetter("memory_bytes"))[:1]


def nearby_batches(
    rankings: Rankings, constraints: Constraints, best: Offer | None
) -> tuple[Alternative, ...]:
    """Effective batches near the one asked for, at which training is much faster.

    They are the nearest better batch below it, and the nearest above. Empty if no effective batch
    was asked for.
    """
    wanted = constraints.effective_batch
    if wanted is None:
        return ()
    # Many batches are ranked, so each ranking is kept small.
    few = rankings.of(_contenders(rankings.configurations, constraints))
    better: list[Alternative] = []
    for effective_batch in _near(rankings.configurations, wanted):
        looser = replace(constraints, effective_batch=effective_batch)
        pick = few.under(looser).pick(constraints.memory_bytes)
        if pick is not None and constraints.gains(pick, best, WORTH_ANOTHER_BATCH):
            better.append(_alternative(constraints, best, "nearby batch", pick))
    below = [batch for batch in better if batch.effective_batch < wanted]
    return (
        *_nearest(below, wanted, constraints),
        *_nearest(better[len(below) :], wanted, constraints),
    )


def _contenders(
    configurations: Iterable[Configuration], constraints: Constraints
) -> list[Configuration]:
    """The configurations that can be the best at some effective batch and some memory budget.

    Among configurations with equal micro-batch, accumulation, recipe and gradients, another
    effective batch does not change the order. So only their Pareto front can be the best. In a
    large run that is a small share of the configurations.
    """

    def score(configuration: Configuration) -> float:
        return constraints.score(as_measured(configuration))

    groups: dict[tuple[object, ...], list[Configuration]] = {}
    contenders: list[Configuration] = []
    for configuration in configurations:
        if configuration.trains_wrongly:
            # Rows with wrong losses are kept, because they limit what may be inferred.
            contenders.append(configuration)
            continue
        batch = (configuration.micro_batch, configuration.accumulation)
        key = (*batch, configuration.training_recipe, configuration.gradient_bytes)
        groups.setdefault(key, []).append(configuration)
    for members in groups.values():
        contenders += pareto_front(members, (little_memory, score))
    return contenders


def _near(configurations: Iterable[Configuration], wanted: int) -> list[int]:
    """The batches within ``REACH`` that can be made of measured micro-batches, in rising order."""
    batches = set()
    for configuration in configurations:
        micro_batch = configuration.micro_batch
        # The nearest multiples of the micro-batch: one up to the wanted batch, and one above it.
        below = wanted // micro_batch * micro_batch
        batches |= {below, below + micro_batch, configuration.effective_batch}
    batches.discard(wanted)
    # The limits are ratios: two thirds of the wanted batch is as near as one and a half times it.
    return [batch for batch in sorted(batches) if wanted / REACH <= batch <= wanted * REACH]


def _nearest(
    batches: Sequence[Alternative], wanted: int, constraints: Constraints
) -> list[Alternative]:
    """The nearest of those that are nearly as good as the best of them; empty without batches."""
    scores = [constraints.score(batch.candidate) for batch in batches]
    most = max(scores, default=0.0)
    # If less is better, scores are negative. So the share is taken of the absolute value.
    floor = most - WORTH_ANOTHER_BATCH * abs(most)
    good = [batch for batch, score in zip(batches, scores, strict=True) if score >= floor]
    return sorted(good, key=lambda batch: abs(batch.effective_batch - wanted))[:1]
