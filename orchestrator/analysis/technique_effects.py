"""The effect of each technique on the baseline: alone, or on the way to a pick."""

import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jobs.spec import Choice
from jobs.techniques import BATCH_AXES
from jobs.techniques.sample_kind import same_workload
from orchestrator.analysis.configuration import Configuration, choice_order
from orchestrator.analysis.grouping import grouped
from orchestrator.analysis.repeatability import NEARLY
from orchestrator.labels import changed_label

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
    micro_batch: int | None = None
    """The micro-batch that all pairs have; None if they have different ones."""


def useful_micro_batch(
    configurations: Sequence[Configuration], baseline: Mapping[str, Choice]
) -> int | None:
    """The smallest micro-batch at which the baseline is nearly as fast as at its best, if measured:
    with smaller ones a GPU mostly waits, so a faster technique would not show."""
    speeds: dict[int, float] = {}
    for configuration in configurations:
        others = configuration.choices.keys() - {"micro_batch"}
        if all(configuration.choices[axis] == baseline[axis] for axis in others):
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
    """For each axis and value, the median ratios over the pairs that differ on that axis alone, at
    ``micro_batch`` or the next smaller that a pair has; on the batch's own axes over all pairs."""
    effects: list[TechniqueEffect] = []
    for axis, default in baseline.items():
        pairs = _pairs_by_value(configurations, axis, default)
        for value in sorted(pairs, key=choice_order):
            at_size = pairs[value]
            limit = 0 if axis in BATCH_AXES else micro_batch or 0
            sizes = {own.micro_batch for own, _ in at_size}
            size = max((each for each in sizes if each <= limit), default=None)
            if size is not None:
                at_size = [pair for pair in at_size if pair[0].micro_batch == size]
            effects.append(_effect(axis, default, at_size, size))
    return tuple(effects)


def _effect(
    axis: str, default: Choice, pairs: Sequence[Pair], micro_batch: int | None
) -> TechniqueEffect:
    # Medians, because a single pair that thrashes or waits for the host would distort a mean.
    return TechniqueEffect(
        axis=axis,
        value=pairs[0][0].choices[axis],
        baseline=default,
        pairs=len(pairs),
        memory_ratio=statistics.median(a.memory_bytes / b.memory_bytes for a, b in pairs),
        speed_ratio=statistics.median(
            a.samples_per_second / b.samples_per_second for a, b in pairs
        ),
        same_training=all(own.trains_like == other.trains_like for own, other in pairs),
        micro_batch=micro_batch,
    )


def _pairs_by_value(
    configurations: Sequence[Configuration], axis: str, default: Choice
) -> dict[Choice, list[Pair]]:
    partners: dict[tuple[object, ...], Configuration] = {}
    for own in configurations:
        if own.choices[axis] == default:
            partners.setdefault(_other_choices(own, axis), own)
    pairs: list[Pair] = []
    for own in configurations:
        partner = partners.get(_other_choices(own, axis))
        if own.choices[axis] == default or partner is None:
            continue
        # With longer samples, fewer samples per second do not mean a slower training.
        if same_workload(own.training_recipe, partner.training_recipe):
            pairs.append((own, partner))
    return grouped(pairs, lambda pair: pair[0].choices[axis])


def _other_choices(configuration: Configuration, axis: str) -> tuple[object, ...]:
    # Accumulations are compared at equal effective batch, so the micro-batch may differ as well.
    is_accumulation = axis == "accumulation"
    left_out = BATCH_AXES if is_accumulation else (axis,)
    others = (value for name, value in configuration.choices.items() if name not in left_out)
    batch = configuration.effective_batch if is_accumulation else None
    return (configuration.environment_id, batch, *others)


def labelled_way(
    configurations: Iterable[Configuration], before: Configuration, after: Configuration
) -> Iterator[tuple[str, Configuration]]:
    """Each step says what it adds to the one before; none if nothing changes."""
    if changed_label(before.choices, after.choices):
        yield "your arguments", before
        for one, other in itertools.pairwise(way(configurations, before, after)):
            yield f"+ {changed_label(one.choices, other.choices)}", other


def way(
    configurations: Iterable[Configuration], start: Configuration, goal: Configuration
) -> tuple[Configuration, ...]:
    """From ``start`` to ``goal`` by taking over techniques of the goal, in most steps, and of these
    by the fastest ones. What lies in between has correct losses; its batch may be any."""
    added = {own.trial_ids: _added(start.choices, own.choices) for own in configurations}
    whole = _added(start.choices, goal.choices)
    between = [
        own
        for own in configurations
        if set() < added[own.trial_ids] < whole and not own.trains_wrongly
    ]
    between.sort(key=lambda own: (len(added[own.trial_ids]), own.samples_per_second))
    ways: list[tuple[Configuration, ...]] = [(start,)]
    for step in between:
        reached = added[step.trial_ids]
        before = [each for each in ways if added[each[-1].trial_ids] < reached]
        ways.append((*max(before, key=len), step))
    longest = max(map(len, ways))
    return (*[each for each in ways if len(each) == longest][-1], goal)


def _added(before: Mapping[str, Choice], after: Mapping[str, Choice]) -> set[tuple[str, Choice]]:
    return {pair for pair in after.items() - before.items() if pair[0] not in BATCH_AXES}
