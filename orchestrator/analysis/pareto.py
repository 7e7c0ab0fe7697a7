"""The frontier: the configurations that no comparable one beats on every axis, memory and speed unless asked."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.spec import Choice

Row = Mapping[str, Any]
"""One row of the trials table as a mapping."""

AND = " · "
"""What stands between the parts of an equivalence."""

HOST_BOUND, TRAINS_DIFFERENTLY = "host-bound", "trains differently"
"""Kinds of warnings: the words before their colon."""

_BATCH = "effective_batch="


def is_the_searchs(row: Row) -> bool:
    """Whether a row is the search's own: trials that follow up others are evidence about those, and ranked nowhere."""
    return row.get("purpose") in (None, "search")


@functools.cache
def training_of(equivalence: str) -> str:
    """The kind of training: an equivalence without its effective batch; "" when nothing else sets it apart.

    ``effective_batch=16 · optimizer=sgd`` is of the kind ``optimizer=sgd``.
    """
    parts = equivalence.split(AND)
    return AND.join(
        part for part in parts if part not in ("", "exact") and not part.startswith(_BATCH)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A configuration as measured, its repeats combined: median speed, largest memory."""

    choices: Mapping[str, Choice]
    environment_id: str
    equivalence: str
    memory_bytes: int
    samples_per_second: float
    row: Row = field(repr=False)
    """The first repeat's whole row."""
    trial_ids: tuple[str, ...] = ()
    samples_per_second_error: float | None = None
    """The largest of its repeats: half the 95 % confidence interval, relative to the speed."""
    warnings: tuple[str, ...] = ()
    """What any of its repeats warned of."""

    @property
    def training(self) -> str:
        """Its kind of training; the effective batch is no part of it."""
        return training_of(self.equivalence)

    @property
    def host_bound(self) -> bool:
        """Whether the host's speed was measured rather than the accelerator's."""
        return any(warning.startswith(f"{HOST_BOUND}:") for warning in self.warnings)

    @property
    def trains_differently(self) -> str:
        """What the numerical guard said against its losses; empty when nothing."""
        return next(
            (warning for warning in self.warnings if warning.startswith(f"{TRAINS_DIFFERENTLY}:")),
            "",
        )

    @property
    def repeats(self) -> int:
        """Trials behind this point."""
        return len(self.trial_ids)


MEMORY_COLUMNS = ("device_used_bytes", "peak_allocated_bytes", "host_peak_resident_bytes")
"""What memory can be compared by, best first: the device's count, the tensors', the process's."""


Goodness = Callable[[Point], float]
"""A figure of a point of which more is better."""


def lean(point: Point) -> float:
    """Little memory is good."""
    return -float(point.memory_bytes)


def fast(point: Point) -> float:
    """Speed is good."""
    return point.samples_per_second


def frontier(points: Iterable[Point], axes: Sequence[Goodness] = (lean, fast)) -> tuple[Point, ...]:
    """The Pareto front of points that may be ranked together, by rising memory and rising speed.

    A point stays unless another is no worse on any of ``axes`` and better on one of them: needs no more memory and is
    no slower, unless asked otherwise. Points with minus infinity on an axis have no figure there and are left out.
    """
    own = list(points)
    scored = zip(zip(*(map(axis, own) for axis in axes), strict=True), own, strict=True)
    known = [pair for pair in scored if -math.inf not in pair[0]]
    # What comes earlier in this order can beat what comes later, never the reverse.
    known.sort(key=operator.itemgetter(0), reverse=True)
    front: list[tuple[tuple[float, ...], Point]] = []
    for scores, point in known:
        # On two axes the last to stay is the best so far on the second, and alone decides.
        rivals = front if len(axes) > 2 else front[-1:]
        if not any(_beats(other, scores) for other, _ in rivals):
            front.append((scores, point))
    return tuple(point for _, point in front)


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    return one != other and all(map(operator.ge, one, other))
