"""The figures that an axis of the page's chart can show: all that any configuration has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.objectives import OBJECTIVES


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """A figure that an axis of the chart can show, and how the page names it."""

    title: str
    unit: str
    best: str
    """The page's name for the configuration that is best in this measure."""


MEMORY = Measure(title="memory", unit="B", best="Least memory")
MEASURES: Mapping[str, Measure] = {
    "samples_per_second": Measure(title="samples per second", unit="samples/s", best="Fastest"),
    "joules_per_sample": Measure(
        title="joules per sample", unit="J/sample", best="Least energy per sample"
    ),
    "dollars_per_million": Measure(
        title="price per million samples", unit="per million samples", best="Cheapest"
    ),
    "host_memory": Measure(title="host memory", unit="B", best="Least host memory"),
}
"""Objective -> how the page names it."""


def measures(configurations: Sequence[Configuration]) -> list[dict[str, Any]]:
    """The measures that at least one configuration has a value for.

    The cost is always among them, without values: the page's script computes it from a price that
    the reader sets.
    """
    # Memory is always measured. Less of it is better.
    memory = [configuration.memory_bytes for configuration in configurations]
    measures = [_measure("memory_bytes", MEMORY, is_higher_better=False, values=memory)]
    for name, objective in OBJECTIVES.items():
        figures = [short(objective.of(own, None)) for own in configurations]
        is_measured = figures.count(None) < len(figures)
        if is_measured or name == "dollars_per_million":
            is_higher_better = objective.higher_is_better
            measures.append(
                _measure(name, MEASURES[name], is_higher_better=is_higher_better, values=figures)
            )
    return measures


def _measure(
    name: str, measure: Measure, *, is_higher_better: bool, values: Sequence[Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "higher": is_higher_better,
        "values": values,
        "title": measure.title,
        "unit": measure.unit,
        "best": measure.best,
    }


def short(value: Any) -> Any:
    """A float rounded to seven significant digits, more than any measurement is accurate to."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    return value
