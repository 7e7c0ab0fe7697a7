"""What a configuration can be good at: speed, energy, money, host memory; each a figure of a point, and a direction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orchestrator.analysis.pareto import Point

HOUR, MILLION = 3600, 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """A figure to rank points by."""

    name: str
    words: str
    """What the figure is, as it reads after the number."""
    higher_is_better: bool
    of: Callable[[Point, float | None], float | None]
    """The figure of a point at a price per GPU hour; None where it was not measured."""

    def score(self, point: Point, price_per_hour: float | None = None) -> float:
        """The figure as a number of which more is better; minus infinity where there is none."""
        figure = self.of(point, price_per_hour)
        if figure is None:
            return float("-inf")
        return figure if self.higher_is_better else -figure


def _column(name: str) -> Callable[[Point, float | None], float | None]:
    def read(point: Point, price_per_hour: float | None) -> float | None:
        value = point.row.get(name)
        return None if value is None else float(value)

    return read


def _joules_per_sample(point: Point, price_per_hour: float | None) -> float | None:
    """As measured; from the counted steps' energy where a table is older than the column."""
    row = point.row
    if row.get("joules_per_sample") is not None:
        return float(row["joules_per_sample"])
    if row.get("energy_joules") is None or not row.get("counted_seconds"):
        return None
    return float(row["energy_joules"] / (row["samples_per_second"] * row["counted_seconds"]))


def dollars_per_million(point: Point, price_per_hour: float | None) -> float | None:
    """What a million samples cost at this price per hour of the GPU; None without a price."""
    return (
        None
        if price_per_hour is None
        else price_per_hour / HOUR / point.samples_per_second * MILLION
    )


OBJECTIVES: Mapping[str, Objective] = {
    objective.name: objective
    for objective in (
        Objective(
            name="samples_per_second",
            words="samples/s",
            higher_is_better=True,
            of=lambda point, price: point.samples_per_second,
        ),
        Objective(
            name="joules_per_sample",
            words="J a sample",
            higher_is_better=False,
            of=_joules_per_sample,
        ),
        Objective(
            name="dollars_per_million",
            words="dollars a million samples",
            higher_is_better=False,
            of=dollars_per_million,
        ),
        Objective(
            name="host_memory",
            words="bytes of host memory",
            higher_is_better=False,
            of=_column("host_peak_resident_bytes"),
        ),
    )
}
