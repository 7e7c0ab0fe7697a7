"""The data of the page's script: the configurations that it shows, column by column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.spec import Choice, TrainingRecipe
from jobs.techniques import AXES
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.objectives import OBJECTIVES, Objective
from orchestrator.analysis.profiles import MEMORY_LAYERS, memory_layers
from orchestrator.reporting.anatomies import anatomies_of, asked_first
from orchestrator.reporting.configurations import memory_meaning, recipe_name
from orchestrator.reporting.flags import with_heading
from orchestrator.reporting.html.anatomy_data import plain_anatomy
from orchestrator.reporting.html.downsampling import Shown
from orchestrator.reporting.plots.frontier import encoded_axes

MAX_ANATOMIES = 200
"""A page holds no more of them: each takes about 10 kB. ``anatomy.parquet`` holds all."""
_MAX_SAFE_INTEGER = 2**53
"""Larger integers lose digits in JavaScript."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """What an axis of the chart can show."""

    title: str
    unit: str
    best: str
    """What the best in it is called."""


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
"""Columns shown of a picked configuration, where measured."""


def chart_data(dataset: Dataset, shown: Shown) -> dict[str, Any]:
    """Axes, environments, and the configurations as one table, as plain JSON values."""
    configurations = [own for listed in shown.values() for own in listed]
    recipes = _recipes(dataset)
    axes = {axis: _values(axis, configurations) for axis in dataset.varying_axes}
    colour, marker = encoded_axes(dataset, dataset.main) if dataset.main else (None, None)
    return {
        "name": dataset.run.name,
        "axes": [{"name": axis, "values": values} for axis, values in axes.items()],
        "colour": colour or next(iter(axes), ""),
        "marker": marker or "",
        "environments": [_environment(results, recipes, axes) for results in dataset.environments],
        "measures": _measures(configurations),
        "memoryLayers": [name for name, _ in MEMORY_LAYERS],
        "anatomies": _anatomies(dataset, configurations),
        "columns": _columns(dataset, shown, recipes, axes),
    }


def _recipes(dataset: Dataset) -> list[TrainingRecipe]:
    return list(dict.fromkeys(recipe for own in dataset.environments for recipe in own.fronts))


def _environment(
    results: EnvironmentResults, recipes: Sequence[TrainingRecipe], axes: Mapping[str, Any]
) -> dict[str, Any]:
    choices = results.configurations[0].choices
    names = [
        recipe_name(results, recipe) if recipe in results.fronts else None for recipe in recipes
    ]
    return {
        "hardware": results.hardware,
        "id": results.environment_id,
        "memoryMeaning": memory_meaning(results),
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
    configurations = [own for listed in shown.values() for own in listed]
    recipe_place = {recipe: place for place, recipe in enumerate(recipes)}
    environments: list[int] = []
    checks = []
    for place, results in enumerate(dataset.environments):
        listed = shown[results.environment_id]
        environments += [place] * len(listed)
        checks += [_cap_checks(own, results) for own in listed]
    return {
        "environment": environments,
        "recipe": [recipe_place[own.training_recipe] for own in configurations],
        "label": [dataset.label(own.choices) for own in configurations],
        "capChecks": checks,
        "choices": [_places(axis, values, configurations) for axis, values in axes.items()],
        **_measured(configurations),
    }


def _measured(configurations: Sequence[Configuration]) -> dict[str, Any]:
    """The columns that follow from a configuration alone."""
    return {
        "batch": [own.effective_batch for own in configurations],
        "repeats": [len(own.trial_ids) for own in configurations],
        "trial": [own.trial_ids[0] for own in configurations],
        "ci95": [_short(own.error95) for own in configurations],
        "hostBound": [int(own.is_host_bound) for own in configurations],
        "lossMismatch": [int(bool(own.loss_flags)) for own in configurations],
        "flags": _dictionary([_flags(own) for own in configurations]),
        "memoryLayers": [_layers(own) for own in configurations],
        "details": _details(configurations),
    }


def _flags(configuration: Configuration) -> list[str]:
    return [with_heading(flag) for flag in configuration.flags]


def _layers(configuration: Configuration) -> list[int] | None:
    layers = memory_layers(configuration.row)
    return None if layers is None else list(layers.values())


def _places(
    axis: str, values: Sequence[Choice], configurations: Iterable[Configuration]
) -> list[int]:
    """Each configuration's choice as its place among the axis's values."""
    place_of = {_key(value): place for place, value in enumerate(values)}
    return [place_of[_key(own.choices[axis])] for own in configurations]


def _key(value: Choice) -> tuple[str, Choice]:
    """Distinguishes 1, True and 1.0."""
    return type(value).__name__, value


def _cap_checks(configuration: Configuration, results: EnvironmentResults) -> list[list[Any]]:
    """Of each cap check: the cap's bytes, whether it fitted, speed and memory there."""
    checks: list[list[Any]] = []
    for check in results.cap_checks:
        if check.follows_trial in configuration.trial_ids and (check.fits or check.fails):
            speed = _short(check.samples_per_second)
            checks.append([check.budget_bytes, int(check.fits), speed, check.memory_bytes])
    return checks


def _measures(configurations: Sequence[Configuration]) -> list[dict[str, Any]]:
    """What was measured anywhere. Costs are left to the script: the reader sets a price."""
    memory = [own.memory_bytes for own in configurations]
    measures = [{"name": "memory_bytes", "higher": False, "values": memory, **_named(MEMORY)}]
    for objective in OBJECTIVES.values():
        values = _figures(objective, configurations)
        if objective.name == "dollars_per_million" or any(value is not None for value in values):
            measures.append(
                {
                    "name": objective.name,
                    "higher": objective.higher_is_better,
                    "values": values,
                    **_named(MEASURES[objective.name]),
                }
            )
    return measures


def _named(measure: Measure) -> dict[str, str]:
    return {"title": measure.title, "unit": measure.unit, "best": measure.best}


def _figures(objective: Objective, configurations: Iterable[Configuration]) -> list[Any]:
    return [_short(objective.of(own, None)) for own in configurations]


def _values(axis: str, configurations: Iterable[Configuration]) -> list[Choice]:
    """The values met on an axis, variants in their technique's order, numbers by size."""
    met = {_key(own.choices[axis]): own.choices[axis] for own in configurations}
    values = list(met.values())
    if axis in AXES and not AXES[axis].integer_argument:
        variants = [value for value in AXES[axis].variants if value in values]
        return variants + [value for value in values if value not in variants]
    return sorted(values, key=_order)


def _order(value: Choice) -> tuple[bool, bool, Any]:
    """Nothing, then numbers by size, then names."""
    return isinstance(value, str), value is not None, value or 0


def _details(configurations: Sequence[Configuration]) -> dict[str, Any]:
    """The columns of ``DETAILS`` in which any configuration has a value."""
    columns: dict[str, Any] = {}
    for name in DETAILS:
        values = [own.row.get(name) for own in configurations]
        if all(value in (None, "") for value in values):
            continue
        is_text = any(isinstance(value, str) for value in values)
        columns[name] = _dictionary(values) if is_text else [_short(value) for value in values]
    return columns


def _dictionary(values: Sequence[Any]) -> dict[str, Any]:
    """A column of few different values: these (``of``), and each row's place in them (``at``)."""
    places: dict[str, int] = {}
    different: list[Any] = []
    at: list[int] = []
    for value in values:
        place = places.setdefault(repr(value), len(places))
        at.append(place)
        if place == len(different):
            different.append(value)
    return {"of": different, "at": at}


def _anatomies(dataset: Dataset, configurations: Sequence[Configuration]) -> dict[str, Any]:
    """Place of a configuration -> its anatomy, for those that a reader asks for first."""
    place_of = {own.trial_ids[0]: place for place, own in enumerate(configurations)}
    wanted = [own for results in dataset.environments for own in asked_first(results)]
    profiled = anatomies_of(dataset, wanted) if dataset.anatomies else {}
    shown = [(name, anatomy) for name, anatomy in profiled.items() if name in place_of]
    return {str(place_of[name]): plain_anatomy(anatomy) for name, anatomy in shown[:MAX_ANATOMIES]}


def _short(value: Any) -> Any:
    """A figure without digits beyond its precision."""
    return float(f"{value:.7g}") if isinstance(value, float) else value
