"""The data of the page's script: every measured configuration, column by column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.analysis.objectives import OBJECTIVES
from orchestrator.analysis.pareto import Point
from orchestrator.analysis.summary import Cohort, Summary
from orchestrator.reporting.anatomy import script_data
from orchestrator.reporting.frontier_plot import encodings
from orchestrator.storage.tables.anatomy_rows import SIZES, sizes_of

MEASURES: Mapping[str, tuple[str, str, str]] = {
    "memory_bytes": ("memory", "B", "Leanest"),
    "samples_per_second": ("samples per second", "samples/s", "Fastest"),
    "joules_per_sample": ("joules per sample", "J/sample", "Least energy a sample"),
    "dollars_per_million": ("price per million samples", "per million samples", "Cheapest"),
    "host_memory": ("host memory", "B", "Leanest on the host"),
}
"""What an axis of the chart can show: its name, its unit, and what the best in it is called."""

DETAILS = (
    "peak_allocated_bytes",
    "peak_reserved_bytes",
    "device_peak_bytes",
    "host_peak_resident_bytes",
    "step_seconds_median",
    "tokens_per_second",
    "energy_joules",
    "optimizer_class",
    "attention_kernel",
    "matmul_dtype",
    "zero_stage",
)
"""Columns shown of a picked point, where measured, after its configuration."""


def chart_data(summary: Summary) -> dict[str, Any]:
    """Axes with their values, cohorts, and the points of all cohorts as one table of columns, plain JSON values."""
    placed = [
        (place, point) for place, cohort in enumerate(summary.cohorts) for point in cohort.points
    ]
    points = [point for _, point in placed]
    kinds = list(dict.fromkeys(kind for cohort in summary.cohorts for kind in cohort.fronts))
    axes = {axis: _values(axis, points) for axis in summary.axes}
    colour, marker = encodings(summary, summary.cohorts[0]) if summary.cohorts else (None, None)
    return {
        "name": summary.run.name,
        "axes": [{"name": axis, "values": values} for axis, values in axes.items()],
        "colour": colour or next(iter(axes), ""),
        "marker": marker or "",
        "cohorts": [_cohort(cohort, kinds, axes) for cohort in summary.cohorts],
        "measures": _measures(points),
        "sizes": [name for name, _ in SIZES],
        "anatomies": script_data(summary, points),
        "columns": {
            "cohort": [place for place, _ in placed],
            "training": [kinds.index(point.training) for point in points],
            "batch": [point.row["effective_batch"] for point in points],
            "repeats": [point.repeats for point in points],
            "trial": [point.trial_ids[0] for point in points],
            "label": [summary.label(point) for point in points],
            "error": [_short(point.samples_per_second_ci95) for point in points],
            "hostBound": [int(point.host_bound) for point in points],
            "doubted": [int(bool(point.trains_differently)) for point in points],
            "checks": [
                _checks(point, cohort) for cohort in summary.cohorts for point in cohort.points
            ],
            "warnings": _coded([list(point.warnings) for point in points]),
            "sizes": [_sizes(point) for point in points],
            "choices": [
                [axes[axis].index(point.choices[axis]) for point in points] for axis in axes
            ],
            "details": _details(points),
        },
    }


def _sizes(point: Point) -> list[int] | None:
    sizes = sizes_of(point.row)
    return None if sizes is None else [*sizes.values()]


def _checks(point: Point, cohort: Cohort) -> list[list[Any]]:
    """What was seen of a point under caps: each cap's bytes, whether it fitted, its speed and memory there."""
    own = (
        check
        for check in cohort.checks
        if check.follows in point.trial_ids and (check.fits or check.fails)
    )
    return [
        [c.budget_bytes, int(c.fits), _short(c.samples_per_second), c.memory_bytes] for c in own
    ]


def _cohort(cohort: Cohort, kinds: Sequence[str], axes: Mapping[str, Any]) -> dict[str, Any]:
    choices = cohort.points[0].choices if cohort.points else {}
    return {
        "hardware": cohort.hardware,
        "id": cohort.environment_id,
        "memoryWords": cohort.memory_words,
        "deviceBytes": min(cohort.device_bytes, 2**53),
        "trainings": [
            cohort.training_name(kind) if kind in cohort.fronts else None for kind in kinds
        ],
        "ranked": kinds.index(cohort.training),
        "fixed": {axis: value for axis, value in choices.items() if axis not in axes},
    }


def _measures(points: Sequence[Point]) -> list[dict[str, Any]]:
    """What was measured of any point; a price is the reader's to name, so its figures are left to the script."""
    found = [_measure("memory_bytes", False, [point.memory_bytes for point in points])]
    for objective in OBJECTIVES.values():
        figures = [_short(objective.of(point, None)) for point in points]
        if objective.name == "dollars_per_million" or any(figure is not None for figure in figures):
            found.append(_measure(objective.name, objective.higher_is_better, figures))
    return found


def _measure(name: str, higher: bool, values: Sequence[float | None]) -> dict[str, Any]:
    title, unit, best = MEASURES.get(name, (name.replace("_", " "), "", "Best"))
    return {
        "name": name,
        "higher": higher,
        "values": values,
        "title": title,
        "unit": unit,
        "best": best,
    }


def _values(axis: str, points: Iterable[Point]) -> list[Choice]:
    """The values met on an axis, variants in their technique's order, numbers by size."""
    found = list(dict.fromkeys(point.choices[axis] for point in points))
    if axis in AXES and not AXES[axis].integer_argument:
        return [value for value in AXES[axis].variants if value in found] + [
            value for value in found if value not in AXES[axis].variants
        ]
    return sorted(
        found, key=lambda value: (isinstance(value, str), value is not None, value if value else 0)
    )


def _details(points: Sequence[Point]) -> dict[str, Any]:
    columns = {name: [point.row.get(name) for point in points] for name in DETAILS}
    return {
        name: _coded(values)
        if any(isinstance(value, str) for value in values)
        else [_short(v) for v in values]
        for name, values in columns.items()
        if any(value not in (None, "") for value in values)
    }


def _coded(values: Sequence[Any]) -> dict[str, Any]:
    """A column of few different values as those, and the place of each row's among them."""
    places: dict[str, int] = {}
    of: list[Any] = []
    at: list[int] = []
    for value in values:
        place = places.setdefault(repr(value), len(places))
        at.append(place)
        if place == len(of):
            of.append(value)
    return {"of": of, "at": at}


def _short(value: Any) -> Any:
    """A figure without the digits that nobody reads."""
    return float(f"{value:.7g}") if isinstance(value, float) else value
