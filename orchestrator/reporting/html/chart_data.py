"""The data that the page's script draws: the shown configurations, column by column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobs.spec import Choice, TrainingRecipe
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.profiles import MEMORY_LAYERS, memory_layers
from orchestrator.labels import label
from orchestrator.reporting.configurations import LOSS_STATES, memory_meaning, recipe_name
from orchestrator.reporting.flags import with_heading
from orchestrator.reporting.html.anatomy_data import plain_anatomy
from orchestrator.reporting.html.batch_lines import batch_lines
from orchestrator.reporting.html.decisions import decisions, offered_batches
from orchestrator.reporting.html.downsampling import Shown
from orchestrator.reporting.html.measures import measures, short
from orchestrator.reporting.html.pairs import explained_pairs
from orchestrator.reporting.plots.encoding import (
    encoded_axes,
    key_of,
    label_axes,
    shown_budgets,
    values_of,
)
from orchestrator.reporting.plots.style import PALETTE, RISING, colours_of
from orchestrator.reporting.sections.anatomy import anatomies_of, asked_first
from orchestrator.reporting.sections.headline import first_budget

MAX_ANATOMIES = 200
"""A page holds at most this many anatomies of about 10 kB. ``anatomy.parquet`` holds all."""
_MAX_SAFE_INTEGER = 2**53
"""Larger integers lose digits in JavaScript."""


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
    configurations = _in_order(dataset, shown)
    recipes = _recipes(dataset)
    axes = {axis: values_of(axis, configurations) for axis in dataset.varying_axes}
    # The script refers to a configuration by its row number.
    index_of = {own.trial_ids[0]: index for index, own in enumerate(configurations)}
    return {
        "name": dataset.run.name,
        **_encoding(dataset, axes),
        "budget": first_budget(dataset),
        "environments": _environments(dataset, recipes, axes, index_of),
        "measures": measures(configurations),
        "memoryLayers": [name for name, _ in MEMORY_LAYERS],
        "anatomies": _anatomies(dataset, index_of),
        "pairs": explained_pairs(dataset, index_of),
        "columns": _columns(dataset, shown, recipes, axes),
    }


def _environments(
    dataset: Dataset,
    recipes: Sequence[TrainingRecipe],
    axes: Mapping[str, Sequence[Choice]],
    index_of: Mapping[str, int],
) -> list[dict[str, Any]]:
    """What the page shows of each environment: its budgets, decisions and lines."""
    environments = []
    for results in dataset.environments:
        environment = _environment(results, recipes, axes)
        environment["budgets"] = shown_budgets(dataset, results)
        environment["batches"] = list(offered_batches(results))
        environment["decisions"] = decisions(dataset, results, recipes, index_of)
        environment["lines"] = batch_lines(dataset, results, index_of)
        environments.append(environment)
    return environments


def _in_order(dataset: Dataset, shown: Shown) -> list[Configuration]:
    """The shown configurations, one environment after another."""
    configurations: list[Configuration] = []
    for results in dataset.environments:
        configurations += shown[results.environment_id]
    return configurations


def _recipes(dataset: Dataset) -> list[TrainingRecipe]:
    """The training recipes of all environments, each once, in order of appearance."""
    recipes: dict[TrainingRecipe, None] = {}
    for results in dataset.environments:
        recipes.update(dict.fromkeys(results.fronts))
    return list(recipes)


def _encoding(dataset: Dataset, axes: Mapping[str, Sequence[Choice]]) -> dict[str, Any]:
    """The axes with the colours of their values, and the axes that are first shown.

    ``colour`` and ``marker`` name the axis that the points' colours and markers stand for.
    """
    colour, marker = None, None
    if dataset.main is not None:
        colour, marker = encoded_axes(dataset, dataset.main)
    listed = []
    for axis, values in axes.items():
        listed.append({"name": axis, "values": values, "colours": colours_of(values)})
    return {
        "axes": listed,
        "colour": colour or next(iter(axes), ""),
        "marker": marker or "",
        "palette": PALETTE,
        "rising": RISING,
    }


def _environment(
    results: EnvironmentResults, recipes: Sequence[TrainingRecipe], axes: Mapping[str, Any]
) -> dict[str, Any]:
    choices = results.configurations[0].choices
    names: list[str | None] = []
    for recipe in recipes:
        is_measured_here = recipe in results.fronts
        names.append(recipe_name(results, recipe) if is_measured_here else None)
    return {
        "hardware": results.hardware,
        "id": results.environment_id,
        "memoryMeaning": memory_meaning(results),
        # An unknown size is infinite, which JSON cannot hold.
        "deviceBytes": min(results.device_bytes, _MAX_SAFE_INTEGER),
        "recipes": names,
        "ranked": recipes.index(results.recipe),
        "fixed": {axis: value for axis, value in choices.items() if axis not in axes},
    }


def _columns(
    dataset: Dataset,
    shown: Shown,
    recipes: Sequence[TrainingRecipe],
    axes: Mapping[str, Sequence[Choice]],
) -> dict[str, Any]:
    """One value for each configuration in every column."""
    # Columns compress better than rows, and the script reads them faster.
    columns = _transposed(_rows(dataset, shown, recipes))
    configurations = _in_order(dataset, shown)
    return {
        **columns,
        "choices": [_indices(axis, axes[axis], configurations) for axis in axes],
        "flags": _dictionary(columns.get("flags", [])),
        "details": _details(configurations),
    }


def _rows(
    dataset: Dataset, shown: Shown, recipes: Sequence[TrainingRecipe]
) -> list[dict[str, Any]]:
    """A row for each configuration, one environment after another."""
    recipe_index = {recipe: index for index, recipe in enumerate(recipes)}
    rows = []
    for index, results in enumerate(dataset.environments):
        short_axes = label_axes(dataset, results)
        for configuration in shown[results.environment_id]:
            row = _row(dataset, results, configuration, short_axes)
            row["environment"] = index
            row["recipe"] = recipe_index[configuration.training_recipe]
            rows.append(row)
    return rows


def _row(
    dataset: Dataset,
    results: EnvironmentResults,
    configuration: Configuration,
    short_axes: Sequence[str],
) -> dict[str, Any]:
    """A configuration's value in each column that depends on no other configuration."""
    return {
        "label": dataset.label(configuration.choices),
        "short": label(configuration.choices, short_axes),
        "capChecks": _cap_checks(configuration, results),
        "batch": configuration.effective_batch,
        "repeats": len(configuration.trial_ids),
        "trial": configuration.trial_ids[0],
        "error95": short(configuration.error95),
        "hostBound": int(configuration.is_host_bound),
        "lossMismatch": int(bool(configuration.loss_flags)),
        "losses": LOSS_STATES[configuration.loss_state],
        "flags": list(map(with_heading, configuration.flags)),
        "memoryLayers": _layers(configuration),
    }


def _transposed(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """A list of rows as a mapping of columns. All rows have the same keys."""
    columns: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return columns


def _layers(configuration: Configuration) -> list[int] | None:
    """The bytes of each memory layer; None if they were not measured."""
    layers = memory_layers(configuration.row)
    if layers is None:
        return None
    return list(layers.values())


def _indices(
    axis: str, values: Sequence[Choice], configurations: Iterable[Configuration]
) -> list[int]:
    """Each configuration's choice as its index among the axis's values."""
    index_of = {key_of(value): index for index, value in enumerate(values)}
    return [index_of[key_of(configuration.choices[axis])] for configuration in configurations]


def _cap_checks(configuration: Configuration, results: EnvironmentResults) -> list[list[Any]]:
    """Four values per cap check: the cap's bytes, whether it fitted, its speed and its memory."""
    checks: list[list[Any]] = []
    for check in results.cap_checks:
        is_conclusive = check.fits or check.fails
        if is_conclusive and check.follows_trial in configuration.trial_ids:
            speed = short(check.samples_per_second)
            checks.append([check.budget_bytes, int(check.fits), speed, check.memory_bytes])
    return checks


def _details(configurations: Sequence[Configuration]) -> dict[str, Any]:
    """The columns of ``DETAILS`` in which any configuration has a value."""
    columns: dict[str, Any] = {}
    for name in DETAILS:
        values = [configuration.row.get(name) for configuration in configurations]
        if all(map(_is_blank, values)):
            continue
        if any(isinstance(value, str) for value in values):
            columns[name] = _dictionary(values)
        else:
            columns[name] = list(map(short, values))
    return columns


def _is_blank(value: Any) -> bool:
    return value is None or value == ""


def _dictionary(values: Sequence[Any]) -> dict[str, Any]:
    """A compact form of a column that repeats a few values.

    ``of`` lists the different values. ``at`` has, for each row, the index of its value in ``of``.
    """
    index_of: dict[str, int] = {}
    different: list[Any] = []
    at: list[int] = []
    for value in values:
        index = index_of.setdefault(repr(value), len(index_of))
        at.append(index)
        if index == len(different):
            different.append(value)
    return {"of": different, "at": at}


def _anatomies(dataset: Dataset, index_of: Mapping[str, int]) -> dict[str, Any]:
    """Index of a configuration -> its anatomy: front and picks first, then the others."""
    if not dataset.anatomies:
        return {}
    wanted: list[Configuration] = []
    for results in dataset.environments:
        wanted += asked_first(results)
    profiled = anatomies_of(dataset, wanted)
    anatomies: dict[str, Any] = {}
    for trial_id, anatomy in profiled.items():
        if trial_id in index_of and len(anatomies) < MAX_ANATOMIES:
            anatomies[str(index_of[trial_id])] = plain_anatomy(anatomy)
    return anatomies
