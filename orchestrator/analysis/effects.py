"""What each technique did to the baseline: alone, and one on top of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.spec import Choice
from orchestrator.analysis.frame.categorical import Figures, Mask, Places, alike
from orchestrator.analysis.frame.points import Points
from orchestrator.analysis.pareto import Point


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """What one variant did in place of the baseline's, over all pairs that differ in nothing else."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One more technique on top of the ones before: a row of the guides' cumulative table."""

    added: str
    point: Point
    memory_ratio: float
    """To the first stage."""
    speed_ratio: float
    """To the first stage."""


def effects(points: Sequence[Point], baseline: Mapping[str, Choice]) -> tuple[Effect, ...]:
    """For each axis and value, the median ratio over the pairs of points that differ in that axis alone.

    ``accumulation`` is compared at equal effective batch: the micro-batch shrinks as it grows, as in the guides.
    """
    own = Points.of(points)
    found: list[Effect] = []
    for axis, value in baseline.items():
        column = own.choices[axis]
        without = _otherwise_alike(own, axis, column.equal(value))
        for other in sorted(set(column.met()) - {value}, key=_order):
            pairs = np.flatnonzero(column.equal(other) & (without >= 0))
            if len(pairs):
                found.append(_effect(axis, other, value, own, pairs, without[pairs]))
    return tuple(found)


def _effect(
    axis: str, value: Choice, baseline: Choice, points: Points, these: Places, to: Places
) -> Effect:
    memory, speed = _ratios(points, these, to)
    kinds = points.equivalences.at
    return Effect(
        axis=axis,
        value=value,
        baseline=baseline,
        pairs=len(these),
        memory_ratio=float(np.median(memory)),
        speed_ratio=float(np.median(speed)),
        same_training=bool((kinds[these] == kinds[to]).all()),
    )


def _order(value: Choice) -> tuple[bool, float, str]:
    number = isinstance(value, (int, float))
    return (not number, float(value) if isinstance(value, (int, float)) else 0.0, str(value))


def _otherwise_alike(points: Points, axis: str, among: Mask) -> Places:
    """Of each point the first ``among`` those that are like it but for the axis; -1 where there is none."""
    left_out = ("accumulation", "micro_batch") if axis == "accumulation" else (axis,)
    others = [column for name, column in points.choices.items() if name not in left_out]
    batch = [points.batches] if axis == "accumulation" else []
    numbers = alike([points.environments, *batch, *others], len(points))
    candidates = np.flatnonzero(among)
    known, first = np.unique(numbers[candidates], return_index=True)
    if not len(known):
        return np.full(len(points), -1)
    at = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return np.where(known[at] == numbers, candidates[first][at], -1)


def _ratios(points: Points, these: Places, to: Places | int) -> tuple[Figures, Figures]:
    memory, speed = points.memory_bytes, points.samples_per_second
    return memory[these] / np.maximum(memory[to], 1), speed[these] / np.maximum(speed[to], 1e-12)


def cumulative(points: Sequence[Point], baseline: Mapping[str, Choice]) -> tuple[Stage, ...]:
    """From the baseline, one technique at a time on top of the ones before, the leanest next each time.

    What changes the training comes after what does not; the effective batch stays as it is. Empty when the baseline
    was not measured or nothing was added to it.
    """
    own = Points.of(points)
    moved = {axis: ~column.equal(baseline[axis]) for axis, column in own.choices.items()}
    unmoved = np.flatnonzero(~np.any([*moved.values()], axis=0)) if moved else np.array([])
    if not len(unmoved):
        return ()
    start = int(unmoved[0])
    places, changed = [start], list[str]()
    while (place := _next(own, moved, start, places[-1], changed)) is not None:
        changed += [axis for axis in _free(moved, changed) if moved[axis][place]]
        places.append(place)
    added = [
        "baseline",
        *(_named(axis, own[place]) for axis, place in zip(changed, places[1:], strict=True)),
    ]
    memory, speed = _ratios(own, np.array(places), start)
    stages = zip(added, places, memory.tolist(), speed.tolist(), strict=True)
    found = [
        Stage(added=name, point=own[place], memory_ratio=m, speed_ratio=s)
        for name, place, m, s in stages
    ]
    return tuple(found) if changed else ()


def _next(
    points: Points, moved: Mapping[str, Mask], start: int, last: int, changed: Sequence[str]
) -> int | None:
    """The stage after the last: one axis further, the others as there; None where nothing was measured."""
    further = np.sum([moved[axis] for axis in _free(moved, changed)], axis=0) == 1
    for axis in (*changed, *(("micro_batch",) if "accumulation" in changed else ())):
        if axis in points.choices:
            further = further & (points.choices[axis].at == points.choices[axis].at[last])
    following = np.flatnonzero(further & (points.batches.at == points.batches.at[start]))
    if not len(following):
        return None
    trains, memory, speed = points.equivalences.at, points.memory_bytes, points.samples_per_second
    order = np.lexsort((-speed[following], memory[following], trains[following] != trains[start]))
    return int(following[order[0]])


def _free(moved: Mapping[str, Mask], changed: Sequence[str]) -> list[str]:
    """The axes that a stage may add; the batch's split is one axis."""
    return [axis for axis in moved if axis not in changed and axis != "micro_batch"]


def _named(axis: str, point: Point) -> str:
    if axis == "accumulation":
        return f"batch {point.row['micro_batch']} × accumulation {point.row['accumulation']}"
    return f"{axis} {point.choices[axis]}"
