"""The data that the page's script draws: the shown configurations, column by column."""

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from jobs.spec import Choice, TrainingRecipe
from jobs.techniques.sample_kind import workload_of
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.follow_up_results import CapCheck
from orchestrator.analysis.grouping import grouped
from orchestrator.analysis.objectives import OBJECTIVES
from orchestrator.analysis.profiles import MEMORY_LAYERS, memory_layers
from orchestrator.labels import BATCH_NAMES, label
from orchestrator.reporting.configurations import (
    error_meaning,
    losses,
    memory_meaning,
    recipe_name,
)
from orchestrator.reporting.flags import with_heading
from orchestrator.reporting.html.decisions import (
    anatomies,
    decisions,
    explained_pairs,
    is_asked,
    offered_batches,
    short,
)
from orchestrator.reporting.plots.style import (
    PALETTE,
    RISING,
    colours_of,
    encoded_axes,
    key_of,
    label_axes,
    shown_budgets,
    values_of,
)
from orchestrator.reporting.sections.headline import first_budget

MAX_SIGNS = 12
"""Numbers that have a colour each; more are coloured in bands."""
MAX_LINES = len(PALETTE) - 1
"""Lines for the fastest sets of techniques; with the baseline's there are as many as colours."""
Shown = Mapping[str, Sequence[Configuration]]
"""Environment's id -> its configurations that a page shows."""
MEASURES = {
    "memory_bytes": ("memory", "B", "Least memory"),
    "samples_per_second": ("samples per second", "samples/s", "Fastest"),
    "tokens_per_second": ("tokens per second", "tokens/s", "Most tokens per second"),
    "joules_per_sample": ("joules per sample", "J/sample", "Least energy per sample"),
    "dollars_per_million": ("price per million samples", "per million samples", "Cheapest"),
    "host_memory": ("host memory", "B", "Least host memory"),
}
"""What an axis of the chart can show -> its title, its unit, and the name of the best in it."""
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
"""Columns that the page shows of the selected configuration, if they were measured."""


def chart_data(dataset: Dataset, shown: Shown) -> dict[str, Any]:
    """All data of the page's chart as plain JSON values: axes, environments, configurations."""
    configurations = [
        own for results in dataset.environments for own in shown[results.environment_id]
    ]
    recipes = list(dict.fromkeys(own for results in dataset.environments for own in results.fronts))
    axes = {axis: values_of(axis, configurations) for axis in dataset.varying_axes}
    # The script refers to a configuration by its row number.
    index_of = {own.trial_ids[0]: index for index, own in enumerate(configurations)}
    environments = [
        _environment(dataset, results, recipes, axes, index_of) for results in dataset.environments
    ]
    return {
        "name": dataset.run.name,
        **_encodings(dataset, axes, environments),
        "budget": first_budget(dataset),
        "environments": environments,
        "measures": list(_measures(configurations)),
        "memoryLayers": list(MEMORY_LAYERS),
        "anatomies": anatomies(dataset, index_of),
        "pairs": explained_pairs(dataset, index_of),
        "columns": _columns(dataset, shown, configurations, recipes, axes),
    }


def _measures(configurations: Sequence[Configuration]) -> Iterator[dict[str, Any]]:
    """The cost has no values: the page's script computes it from a price that the reader sets."""
    workloads = len({workload_of(own.training_recipe) for own in configurations})
    for name, (title, unit, best) in MEASURES.items():
        # Memory is no objective. It is always measured, and less of it is better.
        objective = OBJECTIVES.get(name)
        if objective is not None and not is_asked(objective, workloads):
            continue
        values = [
            own.memory_bytes if objective is None else short(objective.of(own, None))
            for own in configurations
        ]
        is_higher_better = objective is not None and objective.higher_is_better
        if name == "dollars_per_million" or any(value is not None for value in values):
            texts = {"title": title, "unit": unit, "best": best}
            yield {"name": name, "higher": is_higher_better, "values": values, **texts}


def _encodings(
    dataset: Dataset,
    axes: Mapping[str, Sequence[Choice]],
    environments: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """What colours can stand for: the axes, recipes and hardware; and what they stand for first."""
    colour, marker = encoded_axes(dataset, dataset.environments[0])
    encodings = [_encoding(axis, axis.replace("_", " "), values) for axis, values in axes.items()]
    # Each recipe by its name in the first environment that has it.
    of_environments = zip(*(own["recipes"] for own in environments), strict=True)
    recipes = [next(filter(None, names)) for names in of_environments]
    encodings.append(_encoding("recipe", "training recipe", recipes))
    if len(environments) > 1:
        hardware = [f"{own['hardware']} {own['id']}" for own in environments]
        encodings.append(_encoding("hardware", "hardware", hardware))
    return {
        "encodings": encodings,
        "colour": colour or next(iter(axes), ""),
        "marker": marker or "",
        # Colours for parts of anatomies and for lines, which then repeat.
        "palette": colours_of([str(number) for number in range(60)]),
    }


def _encoding(name: str, title: str, values: Sequence[Choice]) -> dict[str, Any]:
    """``values``, the ``names`` and ``colours`` of groups of them; ``of``: the group of each."""
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
    names, colours, groups = texts, colours_of(values), list(range(len(values)))
    if len(values) > MAX_SIGNS and not any(isinstance(value, str) for value in values):
        # Bands of about as many values each, smallest first.
        colours = list(RISING)
        groups = [index * len(RISING) // len(values) for index in groups]
        bands = grouped(range(len(values)), groups.__getitem__).values()
        names = [f"{texts[band[0]]} to {texts[band[-1]]}" for band in bands]
    about = {"name": name, "title": title, "values": texts}
    return {**about, "names": names, "colours": colours, "of": groups}


def _environment(
    dataset: Dataset,
    results: EnvironmentResults,
    recipes: Sequence[TrainingRecipe],
    axes: Mapping[str, Any],
    index_of: Mapping[str, int],
) -> dict[str, Any]:
    choices = results.configurations[0].choices
    return {
        "hardware": results.hardware,
        "id": results.environment_id,
        "memoryMeaning": memory_meaning(results),
        "errorMeaning": error_meaning(results),
        # An unknown size is infinite, which JSON cannot hold; above 2**53 JavaScript loses digits.
        "deviceBytes": min(results.device_bytes, 2**53),
        # None for a recipe that was measured elsewhere only.
        "recipes": [
            recipe_name(results, own) if own in results.fronts else None for own in recipes
        ],
        "ranked": recipes.index(results.recipe),
        "fixed": {axis: value for axis, value in choices.items() if axis not in axes},
        "budgets": shown_budgets(dataset, results),
        "batches": offered_batches(results),
        "decisions": decisions(dataset, results, recipes, index_of),
        "lines": batch_lines(dataset, results, index_of),
    }


def _columns(
    dataset: Dataset,
    shown: Shown,
    configurations: Sequence[Configuration],
    recipes: Sequence[TrainingRecipe],
    axes: Mapping[str, Sequence[Choice]],
) -> dict[str, Any]:
    rows = list(_rows(dataset, shown, recipes))
    # Columns compress better than rows, and the script reads them faster.
    columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
    choices = []
    for axis, values in axes.items():
        places = {key_of(value): index for index, value in enumerate(values)}
        choices.append([places[key_of(own.choices[axis])] for own in configurations])
    details: dict[str, Any] = {}
    for name in DETAILS:
        measured = [short(configuration.row.get(name)) for configuration in configurations]
        if any(value not in (None, "") for value in measured):
            is_text = any(isinstance(value, str) for value in measured)
            details[name] = _dictionary(measured) if is_text else measured
    return {
        **columns,
        "choices": choices,
        "flags": _dictionary(columns.get("flags", [])),
        "details": details,
    }


def _rows(
    dataset: Dataset, shown: Shown, recipes: Sequence[TrainingRecipe]
) -> Iterator[dict[str, Any]]:
    for index, results in enumerate(dataset.environments):
        short_axes = label_axes(dataset, results)
        checks = [check for check in results.cap_checks if check.fits or check.fails]
        for own in shown[results.environment_id]:
            layers, trial_ids = memory_layers(own.row), own.trial_ids
            yield {
                "environment": index,
                "recipe": recipes.index(own.training_recipe),
                "label": dataset.label(own.choices),
                "short": label(own.choices, short_axes),
                "capChecks": [_cap_check(own) for own in checks if own.follows_trial in trial_ids],
                "batch": own.effective_batch,
                "repeats": len(trial_ids),
                "trial": trial_ids[0],
                "error95": short(own.error95),
                "hostBound": int(own.is_host_bound),
                "lossMismatch": int(bool(own.loss_flags)),
                "losses": losses(own),
                "flags": list(map(with_heading, own.flags)),
                "memoryLayers": layers and list(layers.values()),
            }


def _cap_check(own: CapCheck) -> list[Any]:
    return [own.budget_bytes, int(own.fits), short(own.samples_per_second), own.memory_bytes]


def _dictionary(values: Sequence[Any]) -> dict[str, Any]:
    """A column that repeats a few values: ``of`` lists these, ``at`` has each row's index in it."""
    index_of: dict[str, int] = {}
    at = [index_of.setdefault(repr(value), len(index_of)) for value in values]
    different = [values[at.index(index)] for index in range(len(index_of))]
    return {"of": different, "at": at}


def batch_lines(
    dataset: Dataset, results: EnvironmentResults, index_of: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Throughput by two micro-batches or more: name, rows, and which view: ``single`` lines differ
    from the baseline in one technique at most; ``best`` ones are the fastest sets and the
    baseline's."""
    axes = [axis for axis in dataset.varying_axes if axis not in BATCH_NAMES]
    lines: list[dict[str, Any]] = []
    for techniques, points in _fastest_by_size(results, index_of).items():
        if len(points) > 1:
            moved = sum(value != results.baseline[axis] for axis, value in techniques)
            name = label(dict(techniques), axes)
            ordered = [points[size] for size in sorted(points)]
            line: dict[str, Any] = {
                "name": name if moved or name == "baseline" else f"{name} (baseline)",
                "moved": moved,
                "points": [index_of[own.trial_ids[0]] for own in ordered],
                "sizes": sorted(points),
                "speed": max(own.samples_per_second for own in ordered),
            }
            lines.append(line)
    lines.sort(key=itemgetter("speed"), reverse=True)
    for number, line in enumerate(lines):
        line["best"] = int(number < MAX_LINES or not line["moved"])
        line["single"] = int(line["moved"] <= 1)
    return [line for line in lines if line["best"] or line["single"]]


def _fastest_by_size(
    results: EnvironmentResults, index_of: Container[str]
) -> dict[tuple[tuple[str, Choice], ...], dict[int, Configuration]]:
    """Set of techniques -> micro-batch -> the fastest configuration that the page's data has."""
    sets: dict[tuple[tuple[str, Choice], ...], dict[int, Configuration]] = {}
    shown = [own for own in results.configurations if own.trial_ids[0] in index_of]
    for own in sorted(shown, key=attrgetter("samples_per_second"), reverse=True):
        choices = own.choices.items()
        techniques = tuple((axis, value) for axis, value in choices if axis not in BATCH_NAMES)
        sets.setdefault(techniques, {}).setdefault(own.micro_batch, own)
    return sets
