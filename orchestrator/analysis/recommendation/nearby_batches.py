"""Effective batches near the one asked for, at which training is much faster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from orchestrator.analysis.accumulation import Candidate, as_measured
from orchestrator.analysis.configuration import Configuration, gradient_bytes
from orchestrator.analysis.pareto import little_memory, pareto_front
from orchestrator.analysis.recommendation.answer import NearbyBatch
from orchestrator.analysis.recommendation.constraints import Constraints
from orchestrator.analysis.recommendation.costs import gains, ratio_to
from orchestrator.analysis.recommendation.ranking import Ranking

REACH = 1.5
"""Batches up to this many times larger or smaller count as near."""
WORTH_ANOTHER_BATCH = 0.10
"""Another batch changes the training, so it is offered only for a gain above this."""
NEARLY_MOST = 0.9
"""The nearest batch is offered that reaches this share of the best score on its side.

The two sides are the smaller and the larger batches.
"""


RankFew = Callable[[Sequence[Configuration], Constraints], Ranking]
"""Ranks some of the configurations under constraints."""


def nearby_batches(
    rank: RankFew,
    configurations: Sequence[Configuration],
    constraints: Constraints,
    best: Candidate | None,
) -> tuple[NearbyBatch, ...]:
    """The nearest better batch below the one asked for, and the nearest above.

    Empty if no effective batch was asked for.
    """
    wanted = constraints.effective_batch
    if wanted is None:
        return ()
    below: list[NearbyBatch] = []
    above: list[NearbyBatch] = []
    # Many batches are ranked, so each ranking is kept small.
    contenders = _contenders(configurations, constraints)

    def rank_contenders(looser: Constraints) -> Ranking:
        return rank(contenders, looser)

    near = _near(configurations, wanted)
    for nearby in _better_batches(rank_contenders, near, constraints, best):
        if nearby.effective_batch < wanted:
            below.append(nearby)
        else:
            above.append(nearby)
    nearest_below = _nearest(below, wanted, constraints)
    return (*nearest_below, *_nearest(above, wanted, constraints))


def _better_batches(
    rank: Callable[[Constraints], Ranking],
    near: Iterable[int],
    constraints: Constraints,
    best: Candidate | None,
) -> Iterator[NearbyBatch]:
    """The pick of each near batch, if it is better by more than ``WORTH_ANOTHER_BATCH``."""
    for effective_batch in near:
        looser = replace(constraints, effective_batch=effective_batch)
        candidate = rank(looser).pick(constraints.memory_bytes)
        if candidate is None or not gains(candidate, best, constraints, WORTH_ANOTHER_BATCH):
            continue
        ratio = ratio_to(candidate, best, constraints)
        yield NearbyBatch(effective_batch=effective_batch, candidate=candidate, ratio=ratio)


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
        batch = (configuration.row["micro_batch"], configuration.row["accumulation"])
        key = (*batch, configuration.training_recipe, gradient_bytes(configuration))
        groups.setdefault(key, []).append(configuration)
    for members in groups.values():
        contenders += pareto_front(members, (little_memory, score))
    return contenders


def _near(configurations: Iterable[Configuration], wanted: int) -> list[int]:
    """The batches within ``REACH`` that can be made of measured micro-batches, in rising order."""
    batches = set()
    for configuration in configurations:
        micro_batch = int(configuration.row["micro_batch"])
        # The nearest multiples of the micro-batch: one up to the wanted batch, and one above it.
        below = wanted // micro_batch * micro_batch
        batches |= {below, below + micro_batch, configuration.effective_batch}
    batches.discard(wanted)
    # The limits are ratios: two thirds of the wanted batch is as near as one and a half times it.
    return [batch for batch in sorted(batches) if wanted / REACH <= batch <= wanted * REACH]


def _nearest(
    batches: Sequence[NearbyBatch], wanted: int, constraints: Constraints
) -> list[NearbyBatch]:
    """The nearest of those that are nearly as good as the best of them; empty without batches."""
    if not batches:
        return []
    most = max(constraints.score(nearby.candidate) for nearby in batches)
    # If less is better, scores are negative. So the share is taken of the absolute value.
    floor = most - (1 - NEARLY_MOST) * abs(most)
    good = [nearby for nearby in batches if constraints.score(nearby.candidate) >= floor]

    def distance(nearby: NearbyBatch) -> int:
        return abs(nearby.effective_batch - wanted)

    return [min(good, key=distance)]
