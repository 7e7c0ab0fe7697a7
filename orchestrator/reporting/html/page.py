"""The report as one self-contained HTML page: no network, no second file."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.pareto import fronts_by
from orchestrator.reporting.configurations import MARKS_MEAN
from orchestrator.reporting.html.chart_data import Shown, chart_data
from orchestrator.reporting.html.decisions import decision_at
from orchestrator.reporting.json_output import strict
from orchestrator.reporting.plots.style import is_logarithmic
from orchestrator.reporting.report import Report, ReportPart
from orchestrator.reporting.sections import pareto_front
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.storage.layout import TRIALS
from orchestrator.units import memory, number

if TYPE_CHECKING:
    from jinja2 import Environment

SCRIPTS = (
    "dom",
    "format",
    "state",
    "choice",
    "plot",
    "chart",
    "anatomy",
    "decision",
    "picked",
    "table",
    "lines",
    "map",
    "page",
)
"""Modules of the page's script. Each comes after those whose values it reads when it begins."""
_IMPORT = re.compile(r"^import \{[^}]*\} from .*\n", re.MULTILINE)
MAX_CONFIGURATIONS = 20_000
"""A chart of this many points still zooms smoothly; each takes about 200 bytes of the page."""


def render(report: Report) -> str:
    """The page's text. Strings of a run are escaped."""
    from markupsafe import Markup

    dataset, main = report.dataset, report.dataset.main
    shown = shown_configurations(dataset)
    opens = (own for own in report.parts if own.section.on_page and not own.content.title)
    opening = [f"{report.headline}.", *(line for own in opens for line in own.content.text)]
    opening += left_out(dataset, shown)
    facts = {"front": None} if main is None else _facts(dataset, main, shown)
    style, script = _read("page.css"), bundle(SCRIPTS[:1] if main is None else SCRIPTS)
    config = dataset.run.config
    template = _templates().get_template("page.html.j2")
    return template.render(
        **facts,
        name=dataset.name or "Run",
        policy=content_security_policy(script, style),
        style=Markup(style),
        script=Markup(script),
        opening=opening,
        parts=list(_parts(report)),
        command=dataset.run.command,
        config=config and json.dumps(config, indent=2, sort_keys=True),
        table=TRIALS,
        query_columns=query_columns(dataset),
        size=main.memory_column if main else "peak_allocated_bytes",
    )


def _facts(dataset: Dataset, main: EnvironmentResults, shown: Shown) -> dict[str, Any]:
    """What the chart and the decision have, if something was measured."""
    from markupsafe import Markup

    data = {**chart_data(dataset, shown), "marks": MARKS_MEAN}
    encodings = ((own["name"], own["title"]) for own in data["encodings"])
    return {
        "front": pareto_front.make(dataset, main),
        "first": first_decision(data),
        "budgets": [pick.budget_bytes for pick in main.budget_picks],
        "is_log": is_logarithmic(main.configurations),
        "data": data,
        "measures": [(own["name"], own["title"]) for own in data["measures"]],
        "encodings": [("", "nothing"), *encodings],
        **_options(data["environments"]),
        "json": Markup(script_json(_visible(data))),
    }


def shown_configurations(dataset: Dataset, limit: int = MAX_CONFIGURATIONS) -> Shown:
    """About ``limit`` configurations, and those on a front of equal recipe and batch."""
    # Rounded up, so that the even choice alone never exceeds the limit.
    every = max(1, -(-sum(len(own.configurations) for own in dataset.environments) // limit))
    shown = {}
    for results in dataset.environments:
        # Identity, because configurations are not hashable by value.
        kept = set(map(id, results.configurations[::every]))
        if every > 1:
            for front in fronts_by(results.configurations, attrgetter("trains_like")).values():
                kept.update(map(id, front))
        shown[results.environment_id] = [own for own in results.configurations if id(own) in kept]
    return shown


def left_out(dataset: Dataset, shown: Shown) -> list[str]:
    """A sentence about the configurations that a page does not show; empty if it shows all."""
    total = sum(len(own.configurations) for own in dataset.environments)
    shown_count = sum(map(len, shown.values()))
    sentence = (
        f"Map and table show {shown_count:,} of {total:,} configurations: all on a Pareto front of "
        "equal recipe and effective batch, and an even choice of the others. trials.parquet holds "
        "all."
    )
    return [sentence] if shown_count < total else []


def bundle(modules: tuple[str, ...]) -> str:
    """One script of several modules, which share their names and so need no imports."""
    texts = [_IMPORT.sub("", _read(f"scripts/{module}.js")) for module in modules]
    return "\n".join(texts).replace("\nexport const ", "\nconst ")


def _read(name: str) -> str:
    return (files("orchestrator.reporting") / "html" / name).read_text(encoding="utf-8")


def content_security_policy(script: str, style: str) -> str:
    """The policy of a page that runs nothing but this script, and loads nothing. A hash allows
    exactly one text; anything that a run smuggles in has another."""
    digests = (hashlib.sha256(text.encode()).digest() for text in (script, style))
    of_script, of_style = (base64.b64encode(digest).decode() for digest in digests)
    return (
        f"default-src 'none'; script-src 'sha256-{of_script}'; style-src 'sha256-{of_style}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


@functools.cache
def _templates() -> Environment:
    """The page's templates, which escape every value that is not marked as safe."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("orchestrator.reporting", "html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["memory"] = memory
    return templates


def _visible(value: Any) -> Any:
    """Plain values, control and bidi characters of texts as escapes; markup of our own as it is."""
    from markupsafe import Markup

    if isinstance(value, str):
        return value if isinstance(value, Markup) else visible(value)
    if isinstance(value, dict):
        return {visible(key): _visible(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(_visible, value))
    return value


def _options(environments: list[dict[str, Any]]) -> dict[str, list[tuple[Any, str]]]:
    """What there is to choose from: (value, text) of recipes, batches and hardware."""
    ranked = environments[0]["ranked"]
    recipes: dict[Any, str] = {"ranked": environments[0]["recipes"][ranked]}
    for own in environments:
        for index, recipe in enumerate(own["recipes"]):
            # Where an environment ranks another recipe, each of the two can be chosen.
            if recipe is not None and (index != ranked or own["ranked"] != ranked):
                recipes.setdefault(index, recipe)
    batches = sorted({size for own in environments for size in own["batches"]})
    hardware = [f"{own['hardware']} ({own['id']})" for own in environments]
    return {
        "recipes": [*recipes.items(), ("mixed", "all recipes together")],
        "batches": [("", "any"), *((size, str(size)) for size in batches)],
        "hardware": [*enumerate(hardware), ("all", "all, each ranked on its own")],
    }


def _parts(report: Report) -> Iterator[tuple[ReportPart, str, str]]:
    """Each section with tables on the page, its id, and its hardware if there are several."""
    environments = report.dataset.environments
    shown = (own for own in report.parts if own.section.on_page and own.content.tables)
    for part in shown:
        index = 0 if part.environment is None else environments.index(part.environment)
        # The first environment's sections keep the plain name, so that links to it stay.
        section_id = f"{part.section.name}-{index + 1}" if index else part.section.name
        has_others = part.environment is not None and len(environments) > 1
        yield part, section_id, f" on {environments[index].hardware}" if has_others else ""


def first_decision(data: Mapping[str, Any]) -> dict[str, Any]:
    """The decision that the page opens with, in words: it reads without a script, too."""
    environment, budget = data["environments"][0], data["budget"]
    question = f"samples_per_second/any/{environment['ranked']}"
    decision = decision_at(environment["decisions"], question, budget)
    asked = "Fastest of all" if budget is None else f"Fastest in {memory(budget)}"
    if decision is None:
        nothing = dict.fromkeys(("gain", "faster", "figures", "default"), "")
        return {**nothing, "asked": asked, "label": "Nothing measured fits"}
    speed = number(decision["figures"]["samples_per_second"])
    figures = f"{speed} samples/s in {memory(decision['memory'])}"
    return {**decision, "asked": asked, "figures": figures}


def script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in; NaN and infinities become null."""
    text = json.dumps(strict(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # Signs that could end a script element, or a line of JavaScript.
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def query_columns(dataset: Dataset) -> list[str]:
    """What the queries show of a configuration: plain identifiers, which need no quotes."""
    axes = [axis for axis in dataset.varying_axes if axis.isidentifier()]
    return list(dict.fromkeys(["trial_id", "micro_batch", *axes]))
