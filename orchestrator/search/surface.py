"""What a few points of a cost tell of the rest: lower bounds and likely values along the micro-batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A predicted cost (bytes, or seconds a micro-batch): surely no less than ``low``, probably ``likely``."""

    low: float
    likely: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """A measured cost at a micro-batch, with the doubt about it in the cost's own unit."""

    micro_batch: int
    cost: float
    doubt: float


@dataclass(kw_only=True, slots=True)
class Doubt:
    """How far a cost may be from what it was measured or predicted as; it grows with every prediction that broke.

    A break of e at cost c speaks for smaller costs relatively (e / c) and for larger ones absolutely (e): that is how
    a host's jitter behaves, and where the noise is relative, larger costs will show breaks of their own.
    """

    relative: float
    """What is doubted of any cost, broken predictions or not."""
    breaks: list[tuple[float, float]] = field(default_factory=list)
    """(cost, by how much it was below its lower bound)."""

    def of(self, cost: float) -> float:
        """The doubt about a cost, in its unit."""
        learned = max((excess * min(1.0, cost / at) for at, excess in self.breaks), default=0.0)
        return self.relative * cost + learned

    def learn(self, measured: float, excess: float) -> None:
        """A cost was measured to be below its lower bound."""
        self.breaks.append((measured, excess))


def interval(points: Sequence[Seen], micro_batch: int) -> Interval | None:
    """The cost at a micro-batch from points of the same curve, by rising micro-batch; None without points.

    A step's time is a host's floor and then affine in the micro-batch, its memory affine above what the optimizer
    needs alone. Both are convex, never fall, and never rise faster than the micro-batch does. The lower bound follows
    from these three alone, each point being taken at the worse end of its doubt: so it loosens as it is extrapolated.
    """
    if not points:
        return None
    below = [point for point in points if point.micro_batch <= micro_batch]
    above = [point for point in points if point.micro_batch >= micro_batch]
    low = 0.0
    if below:
        low = max(low, max(point.cost - point.doubt for point in below))
    if above:
        low = max(low, max((p.cost - p.doubt) * micro_batch / p.micro_batch for p in above))
    if len(below) > 1 and below[-1].micro_batch < micro_batch:
        low = max(low, max(_beyond(one, below[-1], micro_batch) for one in below[:-1]))
    if len(above) > 1 and above[0].micro_batch > micro_batch:
        low = max(low, max(_before(above[0], one, micro_batch) for one in above[1:]))
    return Interval(low=low, likely=max(low, _likely(points, micro_batch)))


def _beyond(one: Seen, other: Seen, micro_batch: int) -> float:
    """The least a convex cost can be at a micro-batch above both."""
    slope = (other.cost - other.doubt - one.cost - one.doubt) / (other.micro_batch - one.micro_batch)
    return other.cost - other.doubt + max(0.0, slope) * (micro_batch - other.micro_batch)


def _before(one: Seen, other: Seen, micro_batch: int) -> float:
    """The least a convex cost can be at a micro-batch below both."""
    slope = (other.cost + other.doubt - one.cost + one.doubt) / (other.micro_batch - one.micro_batch)
    return one.cost - one.doubt - slope * (one.micro_batch - micro_batch)


def _likely(points: Sequence[Seen], micro_batch: int) -> float:
    """Linear between the two nearest points, and beyond them."""
    if len(points) == 1:
        return points[0].cost * max(1.0, math.sqrt(micro_batch / points[0].micro_batch))
    place = sum(point.micro_batch < micro_batch for point in points)
    one, other = points[max(0, min(place, len(points) - 1) - 1) :][:2]
    slope = (other.cost - one.cost) / (other.micro_batch - one.micro_batch)
    return max(0.0, one.cost + slope * (micro_batch - one.micro_batch))
