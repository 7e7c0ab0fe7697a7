"""The effect of each technique on the baseline: alone, and added one after another."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.spec import Choice
from jobs.techniques.workload import same_workload
from orchestrator.analysis.configuration import Configuration

_SPLIT_AXES = ("accumulation", "micro_batch")
"""The axes that split an effective batch: their product is the effective batch."""
_MIN_SPEED = 1e-12
"""Lower limit of a divisor, so that a ratio stays finite. No measured speed is as low."""
_SATURATED = 0.05
"""A micro-batch is about as fast as the fastest if it is slower by at most this share."""

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
    """A step that adds one technique to those before it.

    It is a row of a cumulative table such as that of the Hugging Face guides.
    """

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

    With a ``micro_batch``, techniques are compared at this micro-batch. If no pair has it, the next
    smaller one that a pair has is used. The axes ``micro_batch`` and ``accumulation`` are compared
    over all pairs.
    """
    effects: list[TechniqueEffect] = []
    for axis, default in baseline.items():
        pairs = _pairs_by_value(configurations, axis, default)
        for value in sorted(pairs, key=_order):
            size, at_size = _at_micro_batch(axis, pairs[value], micro_batch)
            effect = _effect(axis, value, default, at_size)
            effects.append(replace(effect, micro_batch=size))
    return tuple(effects)


def _pairs_by_value(
    configurations: Sequence[Configuration], axis: str, default: Choice
) -> dict[Choice, list[Pair]]:
    """Value of the axis -> its pairs with the baseline's value."""
    partners = _first_by_other_choices(configurations, axis, default)
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


def _at_micro_batch(
    axis: str, pairs: Sequence[Pair], wanted: int | None
) -> tuple[int | None, Sequence[Pair]]:
    """(micro-batch, its pairs) for the wanted micro-batch or the next smaller one.

    (None, all pairs) if no such pair was measured, or if the axis is in ``_SPLIT_AXES``.
    """
    if wanted is None or axis in _SPLIT_AXES:
        return None, pairs
    by_size: dict[int, list[Pair]] = {}
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
    """All other choices -> the first configuration with ``value`` on the axis."""
    first: dict[tuple[object, ...], Configuration] = {}
    for configuration in configurations:
        if configuration.choices[axis] == value:
            first.setdefault(_other_choices(configuration, axis), configuration)
    return first


def _other_choices(configuration: Configuration, axis: str) -> tuple[object, ...]:
    """The values that must be equal in a pair that compares the axis."""
    # A pair may differ in the axis alone.
    left_out: tuple[str, ...] = (axis,)
    equal: list[object] = [configuration.environment_id]
    # Accumulations are compared at equal effective batch. So the micro-batch may differ, but the
    # product of the two may not.
    if axis == "accumulation":
        left_out = _SPLIT_AXES
        equal.append(configuration.effective_batch)
    for name, value in configuration.choices.items():
        if name not in left_out:
            equal.append(value)
    return tuple(equal)


def _effect(axis: str, value: Choice, baseline: Choice, pairs: Sequence[Pair]) -> TechniqueEffect:
    memory_ratios = []
    speed_ratios = []
    same_training = True
    for configuration, partner in pairs:
        memory_ratios.append(_memory_ratio(configuration, partner))
        speed_ratios.append(_speed_ratio(configuration, partner))
        if configuration.trains_like != partner.trains_like:
            same_training = False
    return TechniqueEffect(
        axis=axis,
        value=value,
        baseline=baseline,
        pairs=len(pairs),
        # Medians, because a single pair that thrashes or waits for the host would distort a mean.
        memory_ratio=statistics.median(memory_ratios),
        speed_ratio=statistics.median(speed_ratios),
        same_training=same_training,
    )


def _memory_ratio(configuration: Configuration, reference: Configuration) -> float:
    return configuration.memory_bytes / max(reference.memory_bytes, 1)


def _speed_ratio(configuration: Configuration, reference: Configuration) -> float:
    return configuration.samples_per_second / max(reference.samples_per_second, _MIN_SPEED)


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
    start = _baseline_of(configurations, baseline)
    if start is None:
        return ()
    # The first row of the table is the baseline itself.
    steps = [CumulativeStep(axis="", configuration=start, memory_ratio=1.0, speed_ratio=1.0)]
    moved: list[str] = []
    while True:
        following = _next(configurations, baseline, start, steps[-1], moved)
        if following is None:
            break
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
    if not moved:
        return ()
    return tuple(steps)


def _baseline_of(
    configurations: Iterable[Configuration], baseline: Mapping[str, Choice]
) -> Configuration | None:
    """The first configuration with the baseline's value on every axis."""
    for configuration in configurations:
        if not _moved_axes(configuration, baseline):
            return configuration
    return None


def _moved_axes(configuration: Configuration, baseline: Mapping[str, Choice]) -> list[str]:
    """The axes on which a configuration differs from the baseline."""
    return [axis for axis, value in configuration.choices.items() if value != baseline[axis]]


def _next(
    configurations: Sequence[Configuration],
    baseline: Mapping[str, Choice],
    start: Configuration,
    last: CumulativeStep,
    moved: Sequence[str],
) -> tuple[str, Configuration] | None:
    """The next step: an axis, and the configuration that differs from the last step on this axis.

    None if no such configuration was measured.
    """
    following: list[tuple[str, Configuration]] = []
    for configuration in configurations:
        further = _further_axes(configuration, baseline, moved)
        if len(further) != 1 or not _keeps(configuration, last.configuration, moved):
            continue
        if _is_same_work(configuration, start):
            following.append((further[0], configuration))

    def order(pair: tuple[str, Configuration]) -> tuple[bool, int, float]:
        own = pair[1]
        changes_training = own.trains_like != start.trains_like
        return changes_training, own.memory_bytes, -own.samples_per_second

    return min(following, key=order, default=None)


def _is_same_work(configuration: Configuration, start: Configuration) -> bool:
    """Whether both have the same kind of samples, and as many of them per optimizer step."""
    is_same_batch = configuration.effective_batch == start.effective_batch
    return is_same_batch and same_workload(configuration.training_recipe, start.training_recipe)


def _further_axes(
    configuration: Configuration, baseline: Mapping[str, Choice], moved: Sequence[str]
) -> list[str]:
    """The axes that a configuration changes in addition to ``moved``, the axes of earlier steps.

    Micro-batch and accumulation change together, so only the accumulation is listed.
    """
    further = []
    for axis in _moved_axes(configuration, baseline):
        if axis not in moved and axis != "micro_batch":
            further.append(axis)
    return further


def _keeps(configuration: Configuration, last: Configuration, moved: Sequence[str]) -> bool:
    """Whether a configuration has the last step's values on the axes in ``moved``."""
    kept = list(moved)
    if "accumulation" in moved:
        kept.append("micro_batch")
    for axis in kept:
        if axis in configuration.choices and configuration.choices[axis] != last.choices[axis]:
            return False
    return True
