"""The report as one self-contained HTML page: no network, no second file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.results import run, words
from orchestrator.results.frontier import Point
from orchestrator.results.page import cells
from orchestrator.results.page.picture import encodings
from orchestrator.results.summary import Cohort, Summary

DETAILS = (
    "device_used_bytes",
    "peak_allocated_bytes",
    "peak_reserved_bytes",
    "host_peak_resident_bytes",
    "step_seconds_median",
    "tokens_per_second",
    "energy_joules",
    "optimizer_class",
    "attention_kernel",
    "warnings",
)
"""Columns shown of a picked point, where measured, after its configuration."""


def render(summary: Summary) -> str:
    """The page's text, about 5 MB of it the chart library. Foreign strings are escaped for where they stand."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    pages = Environment(
        loader=PackageLoader("orchestrator.results", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters.update(memory=words.memory, number=words.number, change=words.change, duration=words.duration)
    return pages.get_template("report.html.j2").render(
        summary=summary,
        run=summary.run,
        cells=cells,
        plotly=Markup(get_plotlyjs()),
        data=Markup(script_json(chart_data(summary))),
        config=json.dumps(summary.run.config, indent=2, sort_keys=True) if summary.run.config else "",
        queries=queries(summary),
    )


def script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in; NaN and infinities become null."""
    text = json.dumps(_finite(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def chart_data(summary: Summary) -> dict[str, Any]:
    """What the page's script works on: every axis with its values, every cohort with its points by columns."""
    points = [point for cohort in summary.cohorts for point in cohort.points]
    axes = {axis: _values(axis, points) for axis in summary.axes}
    colour, marker = encodings(summary, summary.cohorts[0]) if summary.cohorts else (None, None)
    return {
        "axes": [{"name": axis, "values": values} for axis, values in axes.items()],
        "colour": colour or next(iter(axes), ""),
        "marker": marker or "",
        "cohorts": [_cohort_data(summary, cohort, axes) for cohort in summary.cohorts],
    }


def _values(axis: str, points: Sequence[Point]) -> list[Choice]:
    found = list(dict.fromkeys(point.choices[axis] for point in points))
    if axis in AXES and not AXES[axis].integer_argument:
        return [value for value in AXES[axis].variants if value in found] + [
            value for value in found if value not in AXES[axis].variants
        ]
    return sorted(found, key=lambda value: (isinstance(value, str), value is not None, value if value else 0))


def _cohort_data(summary: Summary, cohort: Cohort, axes: Mapping[str, Sequence[Choice]]) -> dict[str, Any]:
    points = cohort.points
    trainings = list(cohort.fronts)
    fixed = {axis: value for axis, value in (points[0].choices.items() if points else ()) if axis not in axes}
    return {
        "hardware": cohort.hardware,
        "id": cohort.environment_id,
        "memoryWords": cohort.memory_words,
        "trainings": [cohort.training_name(kind) for kind in trainings],
        "ranked": trainings.index(cohort.training),
        "fixed": fixed,
        "memory": [point.memory_bytes for point in points],
        "speed": [point.samples_per_second for point in points],
        "repeats": [point.repeats for point in points],
        "trial": [point.trial_ids[0] for point in points],
        "label": [summary.label(point) for point in points],
        "training": [trainings.index(point.training) for point in points],
        "batch": [point.row["effective_batch"] for point in points],
        "error": [point.samples_per_second_error for point in points],
        "hostBound": [point.host_bound for point in points],
        "choices": [[axes[axis].index(point.choices[axis]) for point in points] for axis in axes],
        "details": {
            name: [point.row.get(name) for point in points]
            for name in DETAILS
            if any(point.row.get(name) not in (None, [], "") for point in points)
        },
    }


def queries(summary: Summary) -> list[tuple[str, str]]:
    """(tool, snippet) pairs that answer the report's own question from the table."""
    memory = summary.cohorts[0].memory_column if summary.cohorts else "peak_allocated_bytes"
    picked = ["trial_id", "micro_batch", *(axis for axis in summary.axes if axis.isidentifier())]
    columns = list(dict.fromkeys(picked))
    named = ", ".join(columns)
    listed = ", ".join(f'"{column}"' for column in columns)
    return [
        (
            "DuckDB",
            f"SELECT {named}, samples_per_second, {memory} / 1024.0**3 AS gib\nFROM '{run.TRIALS}'\n"
            f"WHERE outcome = 'ok' AND {memory} <= 24 * 1024.0**3\nORDER BY samples_per_second DESC LIMIT 10;",
        ),
        (
            "Polars",
            f'import polars as pl\n\n(\n    pl.scan_parquet("{run.TRIALS}")\n'
            f'    .filter(pl.col("outcome") == "ok", pl.col("{memory}") <= 24 * 1024**3)\n'
            f'    .select({listed}, "samples_per_second", "{memory}")\n'
            '    .sort("samples_per_second", descending=True)\n    .head(10)\n    .collect()\n)',
        ),
    ]
