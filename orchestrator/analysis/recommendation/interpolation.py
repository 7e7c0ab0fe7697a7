"""Candidates with a micro-batch between two measured ones: 20 × 5 for an effective batch of 100."""

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import attrgetter

from jobs.flags import Flag, FlagKind, has_any
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.grouping import grouped
from orchestrator.analysis.recommendation.offers import Offer, WrongAccumulations, at_batch

LEAST_SPEED = 0.9
"""The lower bound of the speed is this share of the interpolated speed. Of 315 recorded GPU-bound
micro-batches, each between one half as large and one twice as large, 312 reach it."""
LEAST_HOST_SPEED = 0.75
"""The same share if the host limits a neighbour. Such speeds vary more from trial to trial."""
MOST_MEMORY = 1.07
"""The upper bound of the memory is at most the interpolated memory times this factor. The largest
that any of 645 recorded micro-batches needs is 1.063."""
MOST_OF_LARGER = 1.02
"""The same of the larger neighbour's memory, which a smaller batch exceeds if its kernels need
larger workspaces. The largest factor that any of the 645 needs is 1.019."""
MOST_MICRO_BATCH = 2**20
"""A larger micro-batch is never inferred: all numbers up to it are tried as divisors."""
_HOST_PACE = frozenset({FlagKind.HOST_BOUND, FlagKind.DATA_BOUND, FlagKind.LAUNCH_BOUND})


def candidates_between(
    configurations: Iterable[Configuration], effective_batch: int
) -> Iterator[Offer]:
    """Candidates whose micro-batch divides the effective batch, between two neighbouring ones. Both
    neighbours were measured without accumulation, and train correctly."""
    listed = list(configurations)
    recorded = WrongAccumulations(listed)
    sound = [own for own in listed if own.accumulation == 1 and not own.trains_wrongly]
    largest = max((own.micro_batch for own in listed), default=0)
    limit = min(largest, effective_batch, MOST_MICRO_BATCH)
    divisors = [number for number in range(1, limit + 1) if effective_batch % number == 0]
    for sizes in grouped(sound, attrgetter("techniques")).values():
        for pair in itertools.pairwise(sorted(sizes, key=attrgetter("micro_batch"))):
            for micro_batch in divisors:
                is_between = pair[0].micro_batch < micro_batch < pair[1].micro_batch
                if is_between and effective_batch % (micro_batch * pair[0].gpus) == 0:
                    yield from _between(*pair, micro_batch, effective_batch, recorded)


def _between(
    smaller: Configuration,
    larger: Configuration,
    micro_batch: int,
    effective_batch: int,
    recorded: WrongAccumulations,
) -> Iterator[Offer]:
    accumulation = effective_batch // (micro_batch * smaller.gpus)
    if not all(recorded.allow(neighbour, accumulation) for neighbour in (smaller, larger)):
        return
    # The neighbours freed their gradients after each step; accumulation keeps them between passes.
    gradients = 0 if accumulation == 1 else smaller.gradient_bytes
    if gradients is None:
        return
    expected = replace(
        at_batch(smaller, micro_batch, accumulation),
        memory_bytes=_memory(smaller, larger, micro_batch) + gradients,
        samples_per_second=_speed(smaller, larger, micro_batch),
        speed_error=max(smaller.speed_error, larger.speed_error, key=attrgetter("half_width95")),
        flags=_worst_flags((*smaller.flags, *larger.flags)),
    )
    yield recorded.suspected(Offer(configuration=expected, measured=smaller, larger=larger))


def _memory(smaller: Configuration, larger: Configuration, micro_batch: int) -> int:
    """An upper bound in bytes, from the line between the neighbours and from the larger one."""
    # A peak is the largest of several sums that each grow linearly, so it is convex. The line
    # between two peaks therefore lies above it, except for the allocator's rounding.
    share = _share(smaller, larger, micro_batch)
    line = (1 - share) * smaller.memory_bytes + share * larger.memory_bytes
    return math.ceil(min(line * MOST_MEMORY, larger.memory_bytes * MOST_OF_LARGER))


def _speed(smaller: Configuration, larger: Configuration, micro_batch: int) -> float:
    """A lower bound in samples per second."""
    # The time of a step is convex, too: above a minimum that launches set, it grows with samples.
    share = _share(smaller, larger, micro_batch)
    first, last = (each.micro_batch / each.samples_per_second for each in (smaller, larger))
    interpolated = micro_batch / ((1 - share) * first + share * last)
    if has_any((*smaller.flags, *larger.flags), _HOST_PACE):
        return LEAST_HOST_SPEED * interpolated
    # If the GPU is the limit, a step with a smaller batch takes no longer than one with a larger.
    return max(LEAST_SPEED * interpolated, micro_batch / last)


def _share(smaller: Configuration, larger: Configuration, micro_batch: int) -> float:
    return (micro_batch - smaller.micro_batch) / (larger.micro_batch - smaller.micro_batch)


def _worst_flags(flags: Iterable[Flag]) -> tuple[Flag, ...]:
    """One flag of each kind, with the largest value."""
    worst: dict[FlagKind, Flag] = {}
    for flag in flags:
        worst[flag.kind] = max(worst.get(flag.kind, flag), flag, key=lambda own: own.value or 0.0)
    return tuple(worst.values())
