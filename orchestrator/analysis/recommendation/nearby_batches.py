"""Effective batches near the one asked for, at which training is much faster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from orchestrator.analysis.accumulation import Candidate
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.recommendation.answer import NearbyBatch
from orchestrator.analysis.recommendation.constraints import Constraints
from orchestrator.analysis.recommendation.costs import MakeRanking, gains, ratio_to

REACH = 1.5
"""A batch this many times larger or smaller is no neighbour any more."""
WORTH_ANOTHER_BATCH = 0.10
"""Another batch changes the training, so it is offered only for a gain above this."""
NEARLY_MOST = 0.9
"""The nearest batch is offered that has this share of what the best neighbour on its side has."""


def nearby_batches(
    rank: MakeRanking,
    configurations: Sequence[Configuration],
    constraints: Constraints,
    best: Candidate | None,
) -> tuple[NearbyBatch, ...]:
    """The nearest better batch below the one asked for, and the nearest above; none where no
    batch was asked for.
    """
    wanted = constraints.effective_batch
    if wanted is None:
        return ()
    better: list[NearbyBatch] = []
    for effective_batch in _near(configurations, wanted):
        looser = replace(constraints, effective_batch=effective_batch)
        candidate = rank(looser).pick(constraints.memory_bytes)
        if candidate is None or not gains(candidate, best, constraints, WORTH_ANOTHER_BATCH):
            continue
        ratio = ratio_to(candidate, best, constraints)
        better.append(
            NearbyBatch(effective_batch=effective_batch, candidate=candidate, ratio=ratio)
        )
    below = [own for own in better if own.effective_batch < wanted]
    above = [own for own in better if own.effective_batch > wanted]
    nearest = (_nearest(below, wanted, constraints), _nearest(above, wanted, constraints))
    return tuple(own for own in nearest if own is not None)


def _near(configurations: Iterable[Configuration], wanted: int) -> list[int]:
    """The batches within reach that measured micro-batches divide, nearest below and above."""
    batches = set()
    for micro_batch in {int(own.row["micro_batch"]) for own in configurations}:
        below = wanted // micro_batch * micro_batch
        batches |= {below, below + micro_batch}
    batches |= {own.effective_batch for own in configurations}
    batches.discard(wanted)
    return sorted(batch for batch in batches if wanted / REACH <= batch <= wanted * REACH)


def _nearest(
    batches: Sequence[NearbyBatch], wanted: int, constraints: Constraints
) -> NearbyBatch | None:
    """The nearest of those that are nearly as good as the best of them."""
    if not batches:
        return None
    most = max(constraints.score(own.candidate) for own in batches)
    floor = most - (1 - NEARLY_MOST) * abs(most)
    good = [own for own in batches if constraints.score(own.candidate) >= floor]

    def distance(own: NearbyBatch) -> int:
        return abs(own.effective_batch - wanted)

    return min(good, key=distance)
