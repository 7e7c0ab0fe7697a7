"""The report as one self-contained HTML page: no network, no second file."""

from __future__ import annotations

import base64
import functools
import gzip
import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from orchestrator.analysis.dataset import Dataset
from orchestrator.reporting.configurations import MARKS_MEAN
from orchestrator.reporting.content import Content
from orchestrator.reporting.html.chart_data import chart_data
from orchestrator.reporting.html.decisions import decision_at
from orchestrator.reporting.html.downsampling import left_out, shown_configurations
from orchestrator.reporting.html.security import content_security_policy
from orchestrator.reporting.json_output import strict
from orchestrator.reporting.report import Part, Report
from orchestrator.reporting.sections import pareto_front
from orchestrator.reporting.sections.headline import first_budget
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.storage.layout import TRIALS
from orchestrator.units import memory, number

if TYPE_CHECKING:
    from jinja2 import Environment

_ESCAPED = "<>&\u2028\u2029"
"""Signs that could end a script element, or a line of JavaScript."""


def render(report: Report) -> str:
    """The page's text with the chart library (half a megabyte). Foreign strings are escaped."""
    from markupsafe import Markup

    # The script's data: what it draws and filters, thinned if there are very many rows.
    dataset = report.dataset
    shown = shown_configurations(dataset)
    data = {**chart_data(dataset, shown), "marks": MARKS_MEAN}
    # The script is rendered first: the policy names it and the library by their hashes.
    pages = _templates()
    library = chart_library()
    script = pages.get_template("report.script.j2").render(front=dataset.main is not None)
    page = pages.get_template("report.html.j2").render(
        **_facts(dataset),
        policy=content_security_policy([script, library]),
        script=Markup(script),
        library=Markup(packed(library)),
        data=Markup(script_json(_all_visible(data))),
        first=first_decision(data, dataset),
        opening=list(_opening(report, left_out(dataset, shown))),
        has_anatomies=bool(data["anatomies"]),
        parts=list(_parts(report)),
    )
    return str(page)


def _facts(dataset: Dataset) -> dict[str, Any]:
    """What the page shows of the run itself: its front, budgets, command and configuration."""
    return {
        "name": dataset.name or "Run",
        "front": _front(dataset),
        "budgets": _budgets(dataset),
        "command": dataset.run.command,
        "config": _config(dataset),
        "queries": queries(dataset),
    }


@functools.cache
def _templates() -> Environment:
    """The page's templates, which escape every value that is not marked as safe.

    They are compiled once for a process.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("orchestrator.reporting", "html"),
        autoescape=True,
        undefined=StrictUndefined,
        # What no template escapes by itself: control characters.
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Sizes in templates read as they do in every other output.
    templates.filters["memory"] = memory
    return templates


def _budgets(dataset: Dataset) -> list[int]:
    """The budgets in bytes that the page offers as buttons."""
    if dataset.main is None:
        return []
    return [pick.budget_bytes for pick in dataset.main.budget_picks]


def _front(dataset: Dataset) -> Content | None:
    """The Pareto front as it reads without a script."""
    if dataset.main is None:
        return None
    return pareto_front.make(dataset, dataset.main)


def _opening(report: Report, missing: str) -> Iterator[str]:
    """What the run was, the sentences of sections without a title, and what the page leaves out."""
    yield f"{report.headline}."
    for part in report.parts:
        if part.section.on_page and not part.content.title:
            yield from part.content.text
    if missing:
        yield missing


def _parts(report: Report) -> Iterator[tuple[Part, str, str]]:
    """Each section with tables on the page, its id, and its hardware if there are several."""
    environments = report.dataset.environments
    for part in report.parts:
        if not (part.section.on_page and part.content.tables):
            continue
        section_id = part.section.name
        on = ""
        if part.environment is not None and len(environments) > 1:
            on = f" on {part.environment.hardware}"
            index = environments.index(part.environment)
            # The first environment's sections keep the plain name, so that links to it stay.
            if index:
                section_id = f"{part.section.name}-{index + 1}"
        yield part, section_id, on


def _config(dataset: Dataset) -> str:
    if not dataset.run.config:
        return ""
    return json.dumps(dataset.run.config, indent=2, sort_keys=True)


def _visible(value: Any) -> Any:
    """Text with control and bidi characters as escapes; markup of our own as it is."""
    from markupsafe import Markup

    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return value


def first_decision(data: Mapping[str, Any], dataset: Dataset) -> dict[str, Any] | None:
    """The decision that the page opens with, in words: it reads without a script, too."""
    if dataset.main is None:
        return None
    budget = first_budget(dataset)
    asked = "Fastest of all"
    if budget is not None:
        asked = f"Fastest in {memory(budget)}"
    environment = data["environments"][0]
    question = f"samples_per_second/any/{environment['ranked']}"
    decision = decision_at(environment["decisions"], question, budget)
    return {"asked": asked, **_in_words(decision)}


def _in_words(decision: Mapping[str, Any] | None) -> dict[str, Any]:
    """A decision's label, figures and gain over the default; None: nothing fits."""
    if decision is None:
        nothing = {"gain": "", "faster": 0, "figures": "", "default": ""}
        return {**nothing, "label": "Nothing measured fits"}
    speed = number(decision["figures"]["samples_per_second"])
    return {
        "gain": decision["gain"],
        "faster": decision["faster"],
        "label": decision["label"],
        "figures": f"{speed} samples/s in {memory(decision['memory'])}",
        "default": decision["default"],
    }


def chart_library() -> str:
    """The text of the chart library."""
    scripts = files("bokeh") / "server" / "static" / "js"
    return "\n".join((scripts / name).read_text() for name in ("bokeh.min.js", "bokeh-api.min.js"))


def packed(text: str) -> str:
    """Gzip in base64: 40 % of the library's size. All browsers since 2023 unpack it."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in; NaN and infinities become null."""
    text = json.dumps(strict(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for sign in _ESCAPED:
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _all_visible(value: Any) -> Any:
    """Plain values whose texts hold no control or bidi characters."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(key): _all_visible(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(_all_visible, value))
    return value


def queries(dataset: Dataset) -> list[tuple[str, str, str]]:
    """(tool, snippet before the budget in GiB, snippet after it): the fastest within a budget."""
    size = "peak_allocated_bytes"
    if dataset.main is not None:
        size = dataset.main.memory_column
    # Only plain identifiers can stand in a query without quotes.
    axes = [axis for axis in dataset.varying_axes if axis.isidentifier()]
    columns = list(dict.fromkeys(["trial_id", "micro_batch", *axes]))
    return [("DuckDB", *_duckdb(columns, size)), ("Polars", *_polars(columns, size))]


def _duckdb(columns: list[str], size: str) -> tuple[str, str]:
    named = ", ".join(columns)
    return (
        f"SELECT {named}, samples_per_second, {size} / 1024.0**3 AS gib\nFROM '{TRIALS}'\n"
        f"WHERE outcome = 'ok' AND {size} <= ",
        " * 1024.0**3\nORDER BY samples_per_second DESC LIMIT 10;",
    )


def _polars(columns: list[str], size: str) -> tuple[str, str]:
    listed = ", ".join(f'"{column}"' for column in columns)
    return (
        f'import polars as pl\n\n(\n    pl.scan_parquet("{TRIALS}")\n'
        f'    .filter(pl.col("outcome") == "ok", pl.col("{size}") <= ',
        f' * 1024**3)\n    .select({listed}, "samples_per_second", "{size}")\n'
        '    .sort("samples_per_second", descending=True)\n    .head(10)\n    .collect()\n)',
    )
