"""What each technique did to the baseline: alone, and one on top of another."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobs.spec import Choice
from orchestrator.results.frontier import Point


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
    found: list[Effect] = []
    for axis in baseline:
        pairs: dict[Choice, list[tuple[Point, Point]]] = {}
        for group in _alike_but(axis, points).values():
            without = next((point for point in group if point.choices[axis] == baseline[axis]), None)
            for point in group if without else ():
                if point.choices[axis] != baseline[axis]:
                    pairs.setdefault(point.choices[axis], []).append((point, without))  # type: ignore[arg-type]
        found += [_effect(axis, value, baseline[axis], pairs[value]) for value in sorted(pairs, key=_order)]
    return tuple(found)


def _effect(axis: str, value: Choice, baseline: Choice, pairs: Sequence[tuple[Point, Point]]) -> Effect:
    memory, speed = zip(*(_ratios(a, b) for a, b in pairs), strict=True)
    return Effect(
        axis=axis,
        value=value,
        baseline=baseline,
        pairs=len(pairs),
        memory_ratio=statistics.median(memory),
        speed_ratio=statistics.median(speed),
        same_training=all(a.equivalence == b.equivalence for a, b in pairs),
    )


def _order(value: Choice) -> tuple[bool, float, str]:
    number = isinstance(value, (int, float))
    return (not number, float(value) if isinstance(value, (int, float)) else 0.0, str(value))


def _alike_but(axis: str, points: Iterable[Point]) -> dict[tuple[object, ...], list[Point]]:
    groups: dict[tuple[object, ...], list[Point]] = {}
    left_out = ("accumulation", "micro_batch") if axis == "accumulation" else (axis,)
    for point in points:
        others = tuple([value for name, value in point.choices.items() if name not in left_out])
        batch = point.row["effective_batch"] if axis == "accumulation" else None
        groups.setdefault((point.environment_id, batch, others), []).append(point)
    return groups


def _ratios(point: Point, to: Point) -> tuple[float, float]:
    return point.memory_bytes / max(to.memory_bytes, 1), point.samples_per_second / max(to.samples_per_second, 1e-12)


def cumulative(points: Sequence[Point], baseline: Mapping[str, Choice]) -> tuple[Stage, ...]:
    """From the baseline, one technique at a time on top of the ones before, the leanest next each time.

    What changes the training comes after what does not; the effective batch stays as it is. Empty when the baseline
    was not measured or nothing was added to it.
    """
    start = next((point for point in points if point.choices == baseline), None)
    if start is None:
        return ()
    stages = [Stage(added="baseline", point=start, memory_ratio=1.0, speed_ratio=1.0)]
    peers = [point for point in points if point.row["effective_batch"] == start.row["effective_batch"]]
    changed: set[str] = set()
    while True:
        following = [point for point in peers if len(_added(point, baseline, changed)) == 1]
        following = [point for point in following if _extends(point, stages[-1].point, changed)]
        if not following:
            return tuple(stages) if len(stages) > 1 else ()
        point = min(
            following, key=lambda p: (p.equivalence != start.equivalence, p.memory_bytes, -p.samples_per_second)
        )
        (axis,) = _added(point, baseline, changed)
        changed.add(axis)
        memory, speed = _ratios(point, start)
        stages.append(Stage(added=_named(axis, point), point=point, memory_ratio=memory, speed_ratio=speed))


def _added(point: Point, baseline: Mapping[str, Choice], changed: set[str]) -> set[str]:
    """The axes in which a point leaves the baseline beyond those already changed; the batch's split is one axis."""
    differing = {axis for axis, value in point.choices.items() if value != baseline[axis]}
    return differing - changed - {"micro_batch"}


def _extends(point: Point, last: Point, changed: set[str]) -> bool:
    held = changed | ({"micro_batch"} if "accumulation" in changed else set())
    return all(point.choices[axis] == last.choices[axis] for axis in held if axis in point.choices)


def _named(axis: str, point: Point) -> str:
    if axis == "accumulation":
        return f"batch {point.row['micro_batch']} × accumulation {point.row['accumulation']}"
    return f"{axis} {point.choices[axis]}"
