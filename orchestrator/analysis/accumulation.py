"""Configurations for an effective batch: measured at it, or inferred from a measurement with less accumulation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from jobs.spec import Choice
from orchestrator.analysis.pareto import TRAINS_DIFFERENTLY, Point, Row
from orchestrator.units import memory

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A configuration one could train with, and how its figures are known."""

    point: Point
    """With figures to count on: where inferred, a speed that it reaches at least, a memory that it needs at most."""
    measured: Point
    """The row itself; the same as ``point`` unless inferred."""
    accumulation: int

    @property
    def inferred(self) -> bool:
        """Whether this very accumulation was not measured."""
        return self.point is not self.measured

    @property
    def how(self) -> str:
        """How an inferred candidate follows from its measurement, in a sentence; empty when measured."""
        if not self.inferred:
            return ""
        kept = self.point.memory_bytes - self.measured.memory_bytes
        text = (
            f"inferred from accumulation {self.measured.row['accumulation']}: more accumulation spreads the "
            "optimizer's step over more samples, so the speed is at least the measured one"
        )
        return (
            f"{text}; gradients are kept between passes, which takes up to {memory(kept)} more"
            if kept
            else text
        )


def candidates(
    points: Iterable[Point], effective_batch: int | None = None
) -> tuple[Candidate, ...]:
    """What can serve ``effective_batch`` (None: every point as it was measured).

    A point of another effective batch serves when its micro-batch divides the one asked for, it was measured with
    less accumulation (with more, its speed would be too good to be promised), and the gradients that accumulation
    keeps can be counted. Where several do, the one with most accumulation speaks: it is the nearest.
    """
    own = list(points)
    if effective_batch is None:
        return tuple(_as_measured(point) for point in own)
    exact = [point for point in own if point.row["effective_batch"] == effective_batch]
    taken = {_but_accumulation(point) for point in exact}
    nearest: dict[tuple[object, ...], Candidate] = {}
    doubts = _doubts_of_accumulation(own)
    for point in sorted(own, key=lambda p: p.row["accumulation"] or 0):
        found = None if _but_accumulation(point) in taken else _inferred(point, effective_batch)
        if found is not None:
            inherited = (*found.point.warnings, *doubts.get(point.choices.get("loop"), ()))
            doubted = replace(found.point, warnings=tuple(dict.fromkeys(inherited)))
            nearest[_but_accumulation(point)] = replace(found, point=doubted)
    return (*(_as_measured(point) for point in exact), *nearest.values())


def _doubts_of_accumulation(points: Iterable[Point]) -> dict[Choice, tuple[str, ...]]:
    """Loop -> what is to be feared of its accumulation, because an accumulated row of it trained differently."""
    feared: dict[Choice, tuple[str, ...]] = {}
    for point in points:
        if point.row["accumulation"] > 1 and point.trains_differently:
            _, _, said = point.trains_differently.partition(": ")
            text = (
                f"{TRAINS_DIFFERENTLY}: with accumulation {point.row['accumulation']} it had {said}"
            )
            feared.setdefault(point.choices.get("loop"), (text,))
    return feared


def _as_measured(point: Point) -> Candidate:
    return Candidate(point=point, measured=point, accumulation=point.row["accumulation"])


def _but_accumulation(point: Point) -> tuple[object, ...]:
    others = {axis: choice for axis, choice in point.choices.items() if axis != "accumulation"}
    return point.environment_id, *others.items()


def _inferred(point: Point, effective_batch: int) -> Candidate | None:
    micro, before = point.row["micro_batch"], point.row["accumulation"]
    accumulation, rest = divmod(effective_batch, micro)
    if rest or accumulation <= before:
        return None
    gradients = gradient_bytes(point) if before == 1 else 0
    if gradients is None:
        return None
    choices: dict[str, Choice] = {**point.choices, "accumulation": accumulation}
    promised = replace(point, choices=choices, memory_bytes=point.memory_bytes + gradients)
    return Candidate(point=promised, measured=point, accumulation=accumulation)


def gradient_bytes(point: Point) -> int | None:
    """What gradients take that outlive a pass: the trained parameters, in their own format; None where unknown.

    DeepSpeed accumulates in 32 bits, whatever its weights are.
    """
    count, dtypes = point.row.get("parameters_trainable"), _dtypes(point.row)
    if count is None or not dtypes:
        return None
    return int(count) * (
        4 if point.row.get("zero_stage") is not None else max(_BYTES[dtype] for dtype in dtypes)
    )


def _dtypes(row: Row) -> list[str]:
    named = str(row.get("parameter_dtypes") or "")
    return [dtype for dtype in _BYTES if dtype in named]
