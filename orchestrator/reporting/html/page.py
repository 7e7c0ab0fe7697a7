"""The report as one self-contained HTML page: no network, no second file."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from orchestrator import units
from orchestrator.analysis.summary import Summary
from orchestrator.reporting import cells
from orchestrator.reporting.html.chart_data import chart_data
from orchestrator.reporting.html.downsampling import left_out, thinned
from orchestrator.reporting.search_summary import account, standing
from orchestrator.storage import run_metadata


def render(summary: Summary) -> str:
    """The page's text, half a megabyte of it the chart library. Foreign strings are escaped for where they stand."""
    whole, summary = summary, thinned(summary)
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    pages = Environment(
        loader=PackageLoader("orchestrator.reporting", "html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters.update(
        memory=units.memory, number=units.number, change=units.change, duration=units.duration
    )
    return pages.get_template("report.html.j2").render(
        summary=summary,
        run=summary.run,
        cells=cells,
        account=[
            *standing(whole),
            *account(summary.run.search),
            *summary.run.notes,
            *filter(None, [left_out(whole, summary)]),
        ],
        library=Markup(packed_library()),
        data=Markup(script_json(chart_data(summary))),
        config=json.dumps(summary.run.config, indent=2, sort_keys=True)
        if summary.run.config
        else "",
        queries=queries(summary),
    )


def packed_library() -> str:
    """The chart library, gzip in base64: under two fifths of its size, and every browser since 2023 can unpack it."""
    scripts = files("bokeh") / "server" / "static" / "js"
    parts = [(scripts / name).read_text() for name in ("bokeh.min.js", "bokeh-api.min.js")]
    return base64.b64encode(gzip.compress("\n".join(parts).encode(), mtime=0)).decode()


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


def queries(summary: Summary) -> list[tuple[str, str, str]]:
    """(tool, snippet before the budget in GiB, snippet after it): the report's own question, asked of the table."""
    memory = summary.cohorts[0].memory_column if summary.cohorts else "peak_allocated_bytes"
    picked = ["trial_id", "micro_batch", *(axis for axis in summary.axes if axis.isidentifier())]
    columns = list(dict.fromkeys(picked))
    named = ", ".join(columns)
    listed = ", ".join(f'"{column}"' for column in columns)
    return [
        (
            "DuckDB",
            f"SELECT {named}, samples_per_second, {memory} / 1024.0**3 AS gib\nFROM '{run_metadata.TRIALS}'\n"
            f"WHERE outcome = 'ok' AND {memory} <= ",
            " * 1024.0**3\nORDER BY samples_per_second DESC LIMIT 10;",
        ),
        (
            "Polars",
            f'import polars as pl\n\n(\n    pl.scan_parquet("{run_metadata.TRIALS}")\n'
            f'    .filter(pl.col("outcome") == "ok", pl.col("{memory}") <= ',
            f' * 1024**3)\n    .select({listed}, "samples_per_second", "{memory}")\n'
            '    .sort("samples_per_second", descending=True)\n    .head(10)\n    .collect()\n)',
        ),
    ]
