"""The combinations of techniques and micro-batches that ``tune`` tries, within a limit."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jobs.spec import Choice
from orchestrator.planning.choices.axes import ACCUMULATION, MICRO_BATCH
from orchestrator.planning.tune_space import policy
from orchestrator.planning.tune_space.values import usual_value

TriedValues = Mapping[str, Sequence[Choice]]
"""Axis -> the values to try, the user's first."""
TechniqueSet = Mapping[str, Choice]
"""Axis -> one value, for every axis of techniques."""
Batch = Mapping[str, Choice]
"""Micro-batch and accumulation."""
Obstacle = Callable[[TechniqueSet], str]
"""The reason why a set cannot run, at any micro-batch; empty if it can."""

_FEW_CHANGES = 2
"""Up to this many changed axes at a time, all values are combined, and even the coarsest choice of
micro-batches is accepted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Combinations:
    """Sets of techniques that can run, and the batches to try each of them at."""

    technique_sets: Sequence[TechniqueSet]
    batches: Sequence[Batch]
    obstacles: Mapping[tuple[str, Choice], str]
    """Axis and value -> the reason why no set with it can run, for each value without a set."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Level:
    """Sets of techniques that change equally many axes."""

    changes: int
    others: Mapping[str, Sequence[Choice]]
    """Axis -> the values that it can change to, for each axis that can be changed."""
    fixed: TechniqueSet = field(default_factory=dict)
    """Values that all sets of the level have in place of the user's. They count as no change."""


def combinations(
    values: TriedValues,
    obstacle: Obstacle,
    *,
    effective_batch: int | None,
    has_gpu: bool,
    limit: int,
) -> Combinations:
    """The most changed axes, then the most micro-batches, that fit the limit and can run."""
    # From one power of two to the next, the most micro-batches first.
    choices_of_batches = [
        _batches(effective_batch, per_octave, has_gpu=has_gpu) for per_octave in (8, 4, 2, 1)
    ]
    found = Combinations(technique_sets=(), batches=(), obstacles={})
    for level in _levels(values, has_gpu=has_gpu):
        most = len(found.technique_sets) + _count(level)
        # Checking what cannot run takes time, so no level is checked that is far beyond the limit.
        if most * len(choices_of_batches[-1]) > 4 * limit:
            break
        larger = _with_level(found, level, values, obstacle)
        sets = max(1, len(larger.technique_sets))
        # Fewer changed axes are better than micro-batches so coarse that the best is missing.
        is_deep = level.changes + len(level.fixed) > _FEW_CHANGES
        accepted = choices_of_batches[:-1] if is_deep else choices_of_batches
        fitting = [batches for batches in accepted if len(batches) * sets <= limit]
        if not fitting:
            break
        found = replace(larger, batches=fitting[0])
    possible = {item for techniques in found.technique_sets for item in techniques.items()}
    surely = {item: why for item, why in found.obstacles.items() if item not in possible}
    return replace(found, obstacles=surely)


def _with_level(
    found: Combinations, level: _Level, values: TriedValues, obstacle: Obstacle
) -> Combinations:
    """What was found with fewer changes, and the sets of one more level or why they cannot run."""
    sets = list(found.technique_sets)
    obstacles = dict(found.obstacles)
    own = {axis: listed[0] for axis, listed in values.items()}
    for changed in _changed_values(level):
        techniques = {**own, **level.fixed, **changed}
        reason = obstacle(techniques)
        if not reason:
            sets.append(techniques)
            continue
        for item in techniques.items():
            # That of the smallest set with a value counts.
            obstacles.setdefault(item, reason)
    return replace(found, technique_sets=sets, obstacles=obstacles)


def _levels(values: TriedValues, *, has_gpu: bool) -> Iterator[_Level]:
    """All levels, those with the fewest changed axes first. Up to a few changes, all values are
    combined. With more changes, rare values are left out. On a GPU, the user's slow values then
    give way to faster ones (``policy.FASTER``)."""
    free = {axis: listed[1:] for axis, listed in values.items() if len(listed) > 1}
    for changes in range(min(_FEW_CHANGES, len(free)) + 1):
        yield _Level(changes=changes, others=free)
    yield from _usual_together(values)
    fixed = _faster_values(values) if has_gpu else {}
    usual = {}
    for axis, others in free.items():
        rare = policy.WITH_ONE_OTHER.get(axis, frozenset())
        if axis not in fixed:
            usual[axis] = [value for value in others if value not in rare]
    for changes in range(_FEW_CHANGES + 1 - len(fixed), len(usual) + 1):
        yield _Level(changes=changes, others=usual, fixed=fixed)


def _usual_together(values: TriedValues) -> Iterator[_Level]:
    """What people train with, in several axes at once, and what is changed with it."""
    usual = {axis: usual_value(axis, listed[0]) for axis, listed in values.items()}
    is_tried = {axis for axis, value in usual.items() if value and value in values[axis]}
    kept = policy.ALONE | policy.NOT_WITH_ALONE
    others = {
        axis: [value for value in listed[1:] if value not in policy.WITH_ONE_OTHER.get(axis, ())]
        for axis, listed in values.items()
        if axis not in kept
    }
    sets = dict.fromkeys(axes & is_tried for axes in policy.USUAL_TOGETHER)
    for axes in (axes for axes in sets if len(axes) > 1 and axes != policy.TOGETHER):
        fixed = {axis: usual[axis] for axis in sorted(axes)}
        for changes in range(len(others) + 1):
            yield _Level(changes=changes, others=others, fixed=fixed)


def _faster_values(values: TriedValues) -> dict[str, Choice]:
    """Axis -> the faster value that is tried in place of the user's, by ``policy.FASTER``."""
    faster: dict[str, Choice] = {}
    for (axis, own), listed in policy.FASTER.items():
        tried = values.get(axis, (None,))
        if tried[0] == own:
            faster.update((axis, value) for value in reversed(listed) if value in tried)
    return faster


def _count(level: _Level) -> int:
    sets_of_axes = _changed_axes(list(level.others), level.changes)
    return sum(math.prod(len(level.others[axis]) for axis in axes) for axes in sets_of_axes)


def _batches(
    effective_batch: int | None, per_octave: int, *, has_gpu: bool
) -> list[dict[str, Choice]]:
    """The batches to try: any micro-batch without accumulation, or those of the effective batch."""
    largest = 1024 if has_gpu else 32
    if effective_batch is None:
        return [{MICRO_BATCH: n, ACCUMULATION: 1} for n in micro_batches(largest, per_octave)]
    sizes = range(1, min(effective_batch, largest) + 1)
    divisors = (size for size in sizes if effective_batch % size == 0)
    return [{MICRO_BATCH: n, ACCUMULATION: effective_batch // n} for n in divisors]


def micro_batches(largest: int, per_octave: int) -> list[int]:
    """Integers evenly spaced in each octave: 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20 ..."""
    sizes: list[int] = []
    power = 1
    while power <= largest:
        sizes += range(power, min(2 * power, largest + 1), max(1, power // per_octave))
        power *= 2
    return sizes


def _changed_values(level: _Level) -> Iterator[dict[str, Choice]]:
    for axes in _changed_axes(list(level.others), level.changes):
        for combination in itertools.product(*(level.others[axis] for axis in axes)):
            yield dict(zip(axes, combination, strict=True))


def _changed_axes(free: Sequence[str], changes: int) -> Iterator[tuple[str, ...]]:
    for axes in itertools.combinations(free, changes):
        alone = policy.ALONE.intersection(axes)
        if len(alone) > 1 and alone != policy.TOGETHER:
            continue
        kept = policy.NOT_WITH_ALONE.intersection(axes)
        if not (alone and kept) or (alone, kept) == policy.EXCEPT:
            yield axes
