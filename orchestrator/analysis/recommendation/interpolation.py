"""Candidates with a micro-batch between two measured ones: 20 × 5 for an effective batch of 100."""

from __future__ import annotations

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
    gradient_bytes,
)
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.repeatability import SpeedError

LEAST_SPEED = 0.9
"""What is promised of an interpolated speed. Of the recorded sizes between their neighbours, half
and twice as large, 312 of 315 GPU-bound ones are as fast as that.
"""
LEAST_HOST_SPEED = 0.75
"""The same where the host sets the pace of a neighbour, which repeats less well."""
MOST_MEMORY = 1.07
"""What is promised of an interpolated memory. The largest of 645 recorded ones is 1.063 times."""
MOST_OF_LARGER = 1.02
"""A smaller batch takes no more memory than the larger one, but for workspaces: the largest of the
645 takes 1.019 times.
"""
_HOST_PACE = frozenset({FlagKind.HOST_BOUND, FlagKind.LAUNCH_BOUND})


def candidates_between(
    configurations: Iterable[Configuration], effective_batch: int
) -> Iterator[Candidate]:
    """What divides the effective batch and lies between two neighbouring measured micro-batches.

    Both neighbours were measured without accumulation, and their losses do not contradict their
    references.
    """
    divisors = _divisors(effective_batch)
    listed = list(configurations)
    recorded = WrongAccumulations.of(listed, effective_batch)
    for sizes in _sizes_by_techniques(listed):
        measured = {own.row["micro_batch"] for own in sizes}
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


def _divisors(number: int) -> list[int]:
    # Divisors come in pairs, one of them up to the square root.
    divisors = set()
    for divisor in range(1, math.isqrt(number) + 1):
        if number % divisor == 0:
            divisors |= {divisor, number // divisor}
    return sorted(divisors)


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
    """Everything that is chosen but the batch, and the environment."""
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
    """None where the gradients that accumulation keeps cannot be counted."""
    accumulation = effective_batch // micro_batch
    # The neighbours freed their gradients after each step; accumulation keeps them between passes.
    kept = 0
    if accumulation > 1:
        gradients = gradient_bytes(smaller)
        if gradients is None:
            return None
        kept = gradients
    promised = at_batch(
        smaller, micro_batch, accumulation, _memory(smaller, larger, micro_batch) + kept
    )
    promised = replace(
        promised,
        samples_per_second=_speed(smaller, larger, micro_batch),
        speed_error=max(smaller.speed_error, larger.speed_error, key=_half_width95),
        flags=_worst_flags((*smaller.flags, *larger.flags)),
    )
    return Candidate(
        configuration=promised,
        measured=smaller,
        accumulation=accumulation,
        basis=Basis.BETWEEN,
        evidence=larger,
    )


def _memory(smaller: Configuration, larger: Configuration, micro_batch: int) -> int:
    """An upper bound: a smaller batch needs no more than a larger one, and little beyond the line
    between its neighbours.
    """
    # A peak is the largest of several sums that each grow linearly, so it is convex, and the line
    # between two peaks lies above it but for the allocator's rounding.
    share = _share(smaller, larger, micro_batch)
    line = (1 - share) * smaller.memory_bytes + share * larger.memory_bytes
    return math.ceil(min(line * MOST_MEMORY, larger.memory_bytes * MOST_OF_LARGER))


def _speed(smaller: Configuration, larger: Configuration, micro_batch: int) -> float:
    """A lower bound in samples per second."""
    # The seconds of a step are convex, too: launches set a floor, then each sample adds the same.
    share = _share(smaller, larger, micro_batch)
    line = (1 - share) * _step_seconds(smaller) + share * _step_seconds(larger)
    interpolated = micro_batch / line
    if has_any((*smaller.flags, *larger.flags), _HOST_PACE):
        return LEAST_HOST_SPEED * interpolated
    # On a GPU the smaller batch takes no longer than the larger one, whatever lies between.
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
