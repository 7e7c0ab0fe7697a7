"""The effect of each technique on the baseline: alone, and added one after another."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.spec import Choice
from jobs.techniques.sample_kind import same_workload
from orchestrator.analysis.configuration import BATCH_AXES, Configuration
from orchestrator.analysis.repeatability import NEARLY

Pair = tuple[Configuration, Configuration]
"""Two configurations that differ on one axis: with the technique, and without it."""


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
    """The micro-batch that all pairs have; None if they have different ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CumulativeStep:
    """A step that adds one technique to those before it, as the tables of guides do."""

    axis: str
    """The axis that was changed in this step; empty for the baseline."""
    configuration: Configuration
    memory_ratio: float
    """Memory divided by the baseline's."""
    speed_ratio: float
    """Samples per second divided by the baseline's."""


def useful_micro_batch(
    configurations: Sequence[Configuration], baseline: Mapping[str, Choice]
) -> int | None:
    """The smallest micro-batch at which the baseline is nearly as fast as at its best micro-batch.

    None if the baseline's techniques were not measured. The report states effects at this
    micro-batch. With a micro-batch of 1 a GPU mostly waits, so a faster technique would not show.
    """
    speeds: dict[int, float] = {}
    for configuration in configurations:
        if all(axis == "micro_batch" for axis in _moved_axes(configuration, baseline)):
            speeds[configuration.micro_batch] = configuration.samples_per_second
    if not speeds:
        return None
    enough = (1 - NEARLY) * max(speeds.values())
    return min(size for size, speed in speeds.items() if speed >= enough)


def technique_effects(
    configurations: Sequence[Configuration],
    baseline: Mapping[str, Choice],
    micro_batch: int | None = None,
) -> tuple[TechniqueEffect, ...]:
    """For each axis and value, the median ratios over the pairs that differ on that axis alone.

    With a ``micro_batch``, techniques are compared at this micro-batch. If no pair has it, the next
    smaller one that a pair has is used. The axes ``micro_batch`` and ``accumulation`` are compared
    over all pairs.
    """
    effects: list[TechniqueEffect] = []
    for axis, default in baseline.items():
        pairs = _pairs_by_value(configurations, axis, default)
        for value in sorted(pairs, key=_order):
            size = None
            at_size = pairs[value]
            sizes = {own.micro_batch for own, _ in at_size}
            if micro_batch is not None and axis not in BATCH_AXES and min(sizes) <= micro_batch:
                size = max(each for each in sizes if each <= micro_batch)
                at_size = [pair for pair in at_size if pair[0].micro_batch == size]
            effect = TechniqueEffect(
                axis=axis,
                value=value,
                baseline=default,
                pairs=len(at_size),
                # Medians, because a single pair that thrashes or waits for the host would distort
                # a mean.
                memory_ratio=statistics.median(_memory_ratio(*pair) for pair in at_size),
                speed_ratio=statistics.median(_speed_ratio(*pair) for pair in at_size),
                same_training=all(own.trains_like == other.trains_like for own, other in at_size),
                micro_batch=size,
            )
            effects.append(effect)
    return tuple(effects)


def _pairs_by_value(
    configurations: Sequence[Configuration], axis: str, default: Choice
) -> dict[Choice, list[Pair]]:
    """Value of the axis -> its pairs with the baseline's value."""
    partners: dict[tuple[object, ...], Configuration] = {}
    for configuration in configurations:
        if configuration.choices[axis] == default:
            partners.setdefault(_other_choices(configuration, axis), configuration)
    pairs: dict[Choice, list[Pair]] = {}
    for configuration in configurations:
        value = configuration.choices[axis]
        partner = partners.get(_other_choices(configuration, axis))
        if value == default or partner is None:
            continue
        # With longer samples, fewer samples per second do not mean a slower training. So pairs
        # must have the same workload.
        if same_workload(configuration.training_recipe, partner.training_recipe):
            pairs.setdefault(value, []).append((configuration, partner))
    return pairs


def _other_choices(configuration: Configuration, axis: str) -> tuple[object, ...]:
    """The values that must be equal in a pair that compares the axis."""
    # A pair may differ in the axis alone.
    left_out: tuple[str, ...] = (axis,)
    equal: list[object] = [configuration.environment_id]
    # Accumulations are compared at equal effective batch. So the micro-batch may differ, but the
    # product of the two may not.
    if axis == "accumulation":
        left_out = BATCH_AXES
        equal.append(configuration.effective_batch)
    equal += [value for name, value in configuration.choices.items() if name not in left_out]
    return tuple(equal)


def _memory_ratio(configuration: Configuration, reference: Configuration) -> float:
    return configuration.memory_bytes / reference.memory_bytes


def _speed_ratio(configuration: Configuration, reference: Configuration) -> float:
    return configuration.samples_per_second / reference.samples_per_second


def _order(value: Choice) -> tuple[bool, float, str]:
    """Sort key: numbers by size, then names by the alphabet."""
    if isinstance(value, (int, float)):
        return False, float(value), str(value)
    return True, 0.0, str(value)


def cumulative_steps(
    configurations: Sequence[Configuration], baseline: Mapping[str, Choice]
) -> tuple[CumulativeStep, ...]:
    """Adds one technique after another to the baseline.

    Each step adds the technique that needs the least memory. Techniques that change the training
    come last. The effective batch stays the same. Empty if the baseline was not measured, or if no
    technique was added to it.
    """
    start = next((each for each in configurations if not _moved_axes(each, baseline)), None)
    if start is None:
        return ()
    # The first row of the table is the baseline itself.
    added = [("", start)]
    while following := _next(configurations, baseline, added):
        added.append(following)
    if len(added) == 1:
        return ()
    return tuple(
        CumulativeStep(
            axis=axis,
            configuration=configuration,
            memory_ratio=_memory_ratio(configuration, start),
            speed_ratio=_speed_ratio(configuration, start),
        )
        for axis, configuration in added
    )


def _moved_axes(configuration: Configuration, baseline: Mapping[str, Choice]) -> list[str]:
    """The axes on which a configuration differs from the baseline."""
    return [axis for axis, value in configuration.choices.items() if value != baseline[axis]]


def _next(
    configurations: Sequence[Configuration],
    baseline: Mapping[str, Choice],
    added: Sequence[tuple[str, Configuration]],
) -> tuple[str, Configuration] | None:
    """The next step: an axis, and the configuration that differs from the last one on this axis.

    None if no such configuration was measured.
    """
    (_, start), (_, last) = added[0], added[-1]
    moved = [axis for axis, _ in added[1:]]
    # Micro-batch and accumulation change together, so only the accumulation is a step.
    kept = {*moved, *(["micro_batch"] if "accumulation" in moved else [])}
    following: list[tuple[str, Configuration]] = []
    for configuration in configurations:
        further = set(_moved_axes(configuration, baseline)) - {*moved, "micro_batch"}
        choices = configuration.choices
        keeps = all(choices[axis] == last.choices[axis] for axis in kept if axis in choices)
        # The same kind of samples, and as many of them per optimizer step.
        is_same_batch = configuration.effective_batch == start.effective_batch
        is_same_work = is_same_batch and same_workload(
            configuration.training_recipe, start.training_recipe
        )
        if len(further) == 1 and keeps and is_same_work:
            following.append((further.pop(), configuration))

    def order(pair: tuple[str, Configuration]) -> tuple[bool, int, float]:
        own = pair[1]
        changes_training = own.trains_like != start.trains_like
        return changes_training, own.memory_bytes, -own.samples_per_second

    return min(following, key=order, default=None)
