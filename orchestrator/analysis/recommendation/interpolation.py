"""Candidates with a micro-batch between two measured ones: 20 × 5 for an effective batch of 100."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from jobs.flags import Flag, FlagKind, has_any
from orchestrator.analysis.accumulation import (
    Basis,
    Candidate,
    WrongAccumulations,
    accumulation_of,
    at_batch,
)
from orchestrator.analysis.configuration import Configuration, gradient_bytes
from orchestrator.analysis.repeatability import SpeedError

LEAST_SPEED = 0.9
"""The lower bound of the speed is this share of the interpolated speed.

It was tested on recorded micro-batches, each between one half as large and one twice as large. Of
315 that were GPU-bound, 312 reach this share.
"""
LEAST_HOST_SPEED = 0.75
"""The same share if the host limits a neighbour. Such speeds vary more from trial to trial."""
MOST_MEMORY = 1.07
"""The upper bound of the memory is at most the interpolated memory times this factor.

The largest factor that any of 645 recorded micro-batches needs is 1.063.
"""
MOST_OF_LARGER = 1.02
"""The upper bound of the memory is at most that of the larger neighbour times this factor.

A smaller batch can need more memory than a larger one if its kernels need larger workspaces. The
largest factor that any of the 645 recorded micro-batches needs is 1.019.
"""
MOST_MICRO_BATCH = 2**20
"""A larger micro-batch is never inferred: all numbers up to it are tried as divisors."""
_HOST_PACE = frozenset({FlagKind.HOST_BOUND, FlagKind.LAUNCH_BOUND})


def candidates_between(
    configurations: Iterable[Configuration], effective_batch: int
) -> Iterator[Candidate]:
    """Candidates with a micro-batch between two neighbouring measured ones.

    The micro-batch divides the effective batch. Both neighbours were measured without accumulation,
    and their losses do not contradict their references.
    """
    divisors = _divisors(effective_batch)
    listed = list(configurations)
    recorded = WrongAccumulations.of(listed, effective_batch)
    for sizes in _sizes_by_techniques(listed):
        measured = {_micro_batch(configuration) for configuration in sizes}
        for smaller, larger in itertools.pairwise(sizes):
            for micro_batch in divisors:
                is_between = smaller.row["micro_batch"] < micro_batch < larger.row["micro_batch"]
                if not is_between or micro_batch in measured:
                    continue
                candidate = _between(smaller, larger, micro_batch, effective_batch)
                if candidate is not None and _is_allowed(candidate, recorded):
                    yield recorded.with_suspicion(candidate)


def _is_allowed(candidate: Candidate, recorded: WrongAccumulations) -> bool:
    """Whether neither neighbour's accumulation is known to train wrongly."""
    assert candidate.evidence is not None
    for neighbour in (candidate.measured, candidate.evidence):
        if not recorded.allows(neighbour, candidate.accumulation):
            return False
    return True


@functools.lru_cache(maxsize=64)
def _divisors(number: int) -> list[int]:
    """The divisors that can be a micro-batch. An effective batch may be any integer of 64 bits."""
    # Divisors come in pairs, one of them up to the square root.
    divisors = set()
    for divisor in range(1, min(math.isqrt(number), MOST_MICRO_BATCH) + 1):
        if number % divisor == 0:
            divisors |= {divisor, number // divisor}
    return sorted(divisor for divisor in divisors if divisor <= MOST_MICRO_BATCH)


def _sizes_by_techniques(
    configurations: Iterable[Configuration],
) -> Iterable[list[Configuration]]:
    """The measured micro-batches of each set of techniques, by rising size."""
    sizes: dict[tuple[object, ...], list[Configuration]] = {}
    for configuration in configurations:
        if accumulation_of(configuration) == 1 and not configuration.trains_wrongly:
            sizes.setdefault(techniques_of(configuration), []).append(configuration)
    return [sorted(listed, key=_micro_batch) for listed in sizes.values()]


def techniques_of(configuration: Configuration) -> tuple[object, ...]:
    """The environment, and every choice except the batch."""
    chosen = []
    for axis, choice in configuration.choices.items():
        if axis not in ("micro_batch", "accumulation"):
            chosen.append((axis, choice))
    return (configuration.environment_id, configuration.training_recipe, *chosen)


def _micro_batch(configuration: Configuration) -> int:
    return int(configuration.row["micro_batch"])


def _between(
    smaller: Configuration, larger: Configuration, micro_batch: int, effective_batch: int
) -> Candidate | None:
    """The candidate between two neighbours.

    None if the gradients that accumulation keeps cannot be counted.
    """
    accumulation = effective_batch // micro_batch
    # The neighbours freed their gradients after each step; accumulation keeps them between passes.
    memory_bytes = _memory(smaller, larger, micro_batch)
    if accumulation > 1:
        gradients = gradient_bytes(smaller)
        if gradients is None:
            return None
        memory_bytes += gradients
    expected = at_batch(smaller, micro_batch, accumulation, memory_bytes)
    expected = replace(
        expected,
        samples_per_second=_speed(smaller, larger, micro_batch),
        speed_error=max(smaller.speed_error, larger.speed_error, key=_half_width95),
        flags=_worst_flags((*smaller.flags, *larger.flags)),
    )
    return Candidate(
        configuration=expected,
        measured=smaller,
        accumulation=accumulation,
        basis=Basis.BETWEEN,
        evidence=larger,
    )


def _memory(smaller: Configuration, larger: Configuration, micro_batch: int) -> int:
    """An upper bound in bytes, from the line between the neighbours and from the larger one."""
    # A peak is the largest of several sums that each grow linearly, so it is convex. The line
    # between two peaks therefore lies above it, except for the allocator's rounding.
    share = _share(smaller, larger, micro_batch)
    line = (1 - share) * smaller.memory_bytes + share * larger.memory_bytes
    return math.ceil(min(line * MOST_MEMORY, larger.memory_bytes * MOST_OF_LARGER))


def _speed(smaller: Configuration, larger: Configuration, micro_batch: int) -> float:
    """A lower bound in samples per second."""
    # The time of a step is convex, too. Kernel launches set a minimum, and above it the time grows
    # in proportion to the samples.
    share = _share(smaller, larger, micro_batch)
    line = (1 - share) * _step_seconds(smaller) + share * _step_seconds(larger)
    interpolated = micro_batch / line
    if has_any((*smaller.flags, *larger.flags), _HOST_PACE):
        return LEAST_HOST_SPEED * interpolated
    # If the GPU is the limit, a step with a smaller batch takes no longer than one with a larger
    # batch.
    return max(LEAST_SPEED * interpolated, micro_batch / _step_seconds(larger))


def _share(smaller: Configuration, larger: Configuration, micro_batch: int) -> float:
    """How far the micro-batch lies on the way from the smaller to the larger one, 0 to 1."""
    begin = _micro_batch(smaller)
    return (micro_batch - begin) / (_micro_batch(larger) - begin)


def _step_seconds(configuration: Configuration) -> float:
    return _micro_batch(configuration) / configuration.samples_per_second


def _half_width95(error: SpeedError) -> float:
    return error.half_width95


def _worst_flags(flags: Iterable[Flag]) -> tuple[Flag, ...]:
    """One flag of each kind, with the largest value."""
    worst: dict[FlagKind, Flag] = {}
    for flag in flags:
        other = worst.get(flag.kind)
        if other is None or (flag.value or 0.0) > (other.value or 0.0):
            worst[flag.kind] = flag
    return tuple(worst.values())
