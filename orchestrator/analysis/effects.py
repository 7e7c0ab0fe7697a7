"""What each technique did to the baseline: alone, and one on top of another."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.spec import Choice
from orchestrator.analysis.configuration import Configuration

_SPLIT_AXES = ("accumulation", "micro_batch")
"""Compared at equal effective batch: as the accumulation grows, the micro-batch shrinks."""
_SATURATED = 0.05
"""A micro-batch is about as fast as the fastest if it is slower by at most this share."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TechniqueEffect:
    """The effect of one technique: all pairs of configurations that differ in nothing else."""

    axis: str
    value: Choice
    baseline: Choice
    pairs: int
    memory_ratio: float
    """Median of memory with it / without it."""
    speed_ratio: float
    """Median of samples per second with it / without it."""
    same_training: bool
    """Whether every pair trains the same way."""
    micro_batch: int | None = None
    """The micro-batch that all pairs have; None where they have different ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CumulativeStep:
    """One more technique on top of the ones before: a row of the Hugging Face guides' cumulative
    table.
    """

    axis: str
    """The axis that moved; empty for the baseline."""
    configuration: Configuration
    memory_ratio: float
    """To the baseline."""
    speed_ratio: float
    """To the baseline."""


def useful_micro_batch(
    configurations: Sequence[Configuration], baseline: Mapping[str, Choice]
) -> int | None:
    """The smallest micro-batch at which the baseline's techniques are about as fast as they get.

    None where they were not measured. A technique's effect is told there: at a micro-batch of 1 a
    GPU mostly waits, and nothing that makes it faster shows.
    """
    speeds: dict[int, float] = {}
    for configuration in configurations:
        if all(axis == "micro_batch" for axis in _moved_axes(configuration, baseline)):
            speeds[configuration.row["micro_batch"]] = configuration.samples_per_second
    if not speeds:
        return None
    enough = (1 - _SATURATED) * max(speeds.values())
    return min(size for size, speed in speeds.items() if speed >= enough)


def technique_effects(
    configurations: Sequence[Configuration],
    baseline: Mapping[str, Choice],
    micro_batch: int | None = None,
) -> tuple[TechniqueEffect, ...]:
    """For each axis and value, the median ratios over the pairs that differ on that axis alone.

    With a ``micro_batch``, techniques are compared at it, or at the largest below it with any pair.
    Pairs of different batches are compared wherever they were measured.
    """
    found: list[TechniqueEffect] = []
    for axis, value in baseline.items():
        without = _first_by_other_choices(configurations, axis, value)
        pairs: dict[Choice, list[tuple[Configuration, Configuration]]] = {}
        for own in configurations:
            partner = without.get(_other_choices(own, axis))
            if own.choices[axis] != value and partner is not None:
                pairs.setdefault(own.choices[axis], []).append((own, partner))
        for other in sorted(pairs, key=_order):
            size, at_size = _at_micro_batch(axis, pairs[other], micro_batch)
            found.append(replace(_effect(axis, other, value, at_size), micro_batch=size))
    return tuple(found)


Pairs = Sequence[tuple[Configuration, Configuration]]


def _at_micro_batch(axis: str, pairs: Pairs, wanted: int | None) -> tuple[int | None, Pairs]:
    """The pairs at the wanted micro-batch or the next below it, with that size; else all pairs."""
    if wanted is None or axis in _SPLIT_AXES:
        return None, pairs
    by_size: dict[int, list[tuple[Configuration, Configuration]]] = {}
    for own, partner in pairs:
        by_size.setdefault(own.row["micro_batch"], []).append((own, partner))
    not_above = [size for size in by_size if size <= wanted]
    if not not_above:
        return None, pairs
    size = max(not_above)
    return size, by_size[size]


def _first_by_other_choices(
    configurations: Iterable[Configuration], axis: str, value: Choice
) -> dict[tuple[object, ...], Configuration]:
    """Everything but the axis -> the first configuration with ``value`` on it."""
    found: dict[tuple[object, ...], Configuration] = {}
    for own in configurations:
        if own.choices[axis] == value:
            found.setdefault(_other_choices(own, axis), own)
    return found


def _other_choices(configuration: Configuration, axis: str) -> tuple[object, ...]:
    """What has to be equal for a pair that compares the axis."""
    left_out = _SPLIT_AXES if axis == "accumulation" else (axis,)
    others = [value for name, value in configuration.choices.items() if name not in left_out]
    batch = [configuration.effective_batch] if axis == "accumulation" else []
    return (configuration.environment_id, *batch, *others)


def _effect(
    axis: str,
    value: Choice,
    baseline: Choice,
    pairs: Sequence[tuple[Configuration, Configuration]],
) -> TechniqueEffect:
    return TechniqueEffect(
        axis=axis,
        value=value,
        baseline=baseline,
        pairs=len(pairs),
        memory_ratio=statistics.median(_memory_ratio(*pair) for pair in pairs),
        speed_ratio=statistics.median(_speed_ratio(*pair) for pair in pairs),
        same_training=all(own.trains_like == other.trains_like for own, other in pairs),
    )


def _memory_ratio(own: Configuration, reference: Configuration) -> float:
    return own.memory_bytes / max(reference.memory_bytes, 1)


def _speed_ratio(own: Configuration, reference: Configuration) -> float:
    return own.samples_per_second / max(reference.samples_per_second, 1e-12)


def _order(value: Choice) -> tuple[bool, float, str]:
    """Numbers by size, then names by the alphabet."""
    if isinstance(value, (int, float)):
        return False, float(value), str(value)
    return True, 0.0, str(value)


def cumulative_steps(
    configurations: Sequence[Configuration], baseline: Mapping[str, Choice]
) -> tuple[CumulativeStep, ...]:
    """From the baseline, one technique at a time on top of the ones before, each time the one with
    least memory.

    Techniques that change the training come after those that do not; the effective batch stays as
    it is. Empty when the baseline was not measured or nothing was added to it.
    """
    start = next((own for own in configurations if not _moved_axes(own, baseline)), None)
    if start is None:
        return ()
    steps = [CumulativeStep(axis="", configuration=start, memory_ratio=1.0, speed_ratio=1.0)]
    moved: list[str] = []
    while (following := _next(configurations, baseline, start, steps[-1], moved)) is not None:
        axis, configuration = following
        moved.append(axis)
        steps.append(
            CumulativeStep(
                axis=axis,
                configuration=configuration,
                memory_ratio=_memory_ratio(configuration, start),
                speed_ratio=_speed_ratio(configuration, start),
            )
        )
    return tuple(steps) if moved else ()


def _moved_axes(configuration: Configuration, baseline: Mapping[str, Choice]) -> list[str]:
    """The axes on which it departs from the baseline."""
    return [axis for axis, value in configuration.choices.items() if value != baseline[axis]]


def _next(
    configurations: Sequence[Configuration],
    baseline: Mapping[str, Choice],
    start: Configuration,
    last: CumulativeStep,
    moved: Sequence[str],
) -> tuple[str, Configuration] | None:
    """The next axis to move and where that leads: one axis further than the last step.

    None where nothing does.
    """
    following = []
    for own in configurations:
        # The split of the batch is one axis, named by its accumulation.
        further = [
            axis
            for axis in _moved_axes(own, baseline)
            if axis not in moved and axis != "micro_batch"
        ]
        is_one_step_further = len(further) == 1 and _keeps(own, last.configuration, moved)
        if is_one_step_further and own.effective_batch == start.effective_batch:
            following.append((further[0], own))
    return min(
        following,
        key=lambda pair: (
            pair[1].trains_like != start.trains_like,
            pair[1].memory_bytes,
            -pair[1].samples_per_second,
        ),
        default=None,
    )


def _keeps(own: Configuration, last: Configuration, moved: Sequence[str]) -> bool:
    """Whether it stands on the axes already moved where the last step does."""
    kept = [*moved, "micro_batch"] if "accumulation" in moved else list(moved)
    return all(own.choices[axis] == last.choices[axis] for axis in kept if axis in own.choices)
