"""What the charts of report.html and frontier.png share: axes shown, values' order, budgets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.reporting.plots.style import MARKERS

MAX_SIGNS = len(MARKERS)
LOG_FROM = 8
"""The memory axis is logarithmic if the largest value is over this many times the smallest."""
_FIRST_COLOUR_AXES = ("precision", "optimizer")
_FIRST_MARKER_AXES = ("activations", "optimizer")


def encoded_axes(dataset: Dataset, results: EnvironmentResults) -> tuple[str | None, str | None]:
    """The axes for colours and for markers: preferred axes first, then names before numbers.

    An axis needs 2 to 8 values, so that its signs can be distinguished.
    """
    named: list[str] = []
    numeric: list[str] = []
    for axis in dataset.varying_axes:
        values = values_of(axis, results.configurations)
        if not 2 <= len(values) <= MAX_SIGNS:
            continue
        if all(map(_is_number, values)):
            numeric.append(axis)
        else:
            named.append(axis)
    # Colour separates names better than it separates sizes.
    fitting = named + numeric
    colour = _first_of((*_FIRST_COLOUR_AXES, *fitting), fitting)
    left = [axis for axis in fitting if axis != colour]
    return colour, _first_of((*_FIRST_MARKER_AXES, *left), left)


def _first_of(wanted: Sequence[str], candidates: Sequence[str]) -> str | None:
    for axis in wanted:
        if axis in candidates:
            return axis
    return None


def _is_number(value: Choice) -> bool:
    return isinstance(value, (int, float))


def values_of(axis: str, configurations: Iterable[Configuration]) -> list[Choice]:
    """The values of an axis that occur: variants in their technique's order, numbers by size."""
    occurring: dict[tuple[str, Choice], Choice] = {}
    for configuration in configurations:
        value = configuration.choices[axis]
        occurring[key_of(value)] = value
    # Techniques in the order of their documentation, so that defaults come first.
    values = list(occurring.values())
    if axis not in AXES or AXES[axis].integer_argument:
        return sorted(values, key=_order)
    variants = [value for value in AXES[axis].variants if value in values]
    return variants + [value for value in values if value not in variants]


def key_of(value: Choice) -> tuple[str, Choice]:
    """Distinguishes 1, True and 1.0."""
    return type(value).__name__, value


def _order(value: Choice) -> tuple[bool, bool, Any]:
    """A sort key: None first, then numbers by size, then names."""
    return isinstance(value, str), value is not None, value or 0


def label_axes(dataset: Dataset, results: EnvironmentResults) -> Sequence[str]:
    """The axes that vary among the ranked configurations: a label in a chart names no others."""
    ranked = [item for item in results.configurations if item.training_recipe == results.recipe]
    varying = []
    for axis in dataset.varying_axes:
        values = {configuration.choices[axis] for configuration in ranked}
        if len(values) > 1:
            varying.append(axis)
    return varying or dataset.varying_axes


def shown_budgets(dataset: Dataset, results: EnvironmentResults) -> list[int]:
    """The budgets in bytes that a chart draws as lines: those of the run, else common cards."""
    if dataset.run.budgets:
        return sorted(set(dataset.run.budgets))
    return [pick.budget_bytes for pick in results.budget_picks]


def is_logarithmic(configurations: Iterable[Configuration]) -> bool:
    """Whether a chart of these configurations has a logarithmic memory axis."""
    sizes = [configuration.memory_bytes for configuration in configurations]
    return max(sizes) > LOG_FROM * max(min(sizes), 1)
