"""What the charts of report.html and frontier.png share: axes shown, values' order, budgets."""

from collections.abc import Iterable, Sequence

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.analysis.configuration import Configuration, choice_order
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.reporting.plots.style import MARKERS


def encoded_axes(dataset: Dataset, results: EnvironmentResults) -> tuple[str | None, str | None]:
    """The axes for colours and for markers: preferred axes first, then names before numbers."""
    values = {axis: values_of(axis, results.configurations) for axis in dataset.varying_axes}
    fitting = [axis for axis in values if 2 <= len(values[axis]) <= len(MARKERS)]
    # Signs of more values are hard to distinguish, and colours of sizes harder than those of names.
    fitting.sort(key=lambda axis: all(isinstance(own, (int, float)) for own in values[axis]))
    colour = _first_of(("precision", "optimizer", *fitting), fitting)
    left = [axis for axis in fitting if axis != colour]
    return colour, _first_of(("activations", "optimizer", *left), left)


def _first_of(wanted: Sequence[str], candidates: Sequence[str]) -> str | None:
    return next((axis for axis in wanted if axis in candidates), None)


def values_of(axis: str, configurations: Iterable[Configuration]) -> list[Choice]:
    """The values of an axis that occur: variants in their technique's order, numbers by size."""
    occurring = [configuration.choices[axis] for configuration in configurations]
    values = list({key_of(value): value for value in occurring}.values())
    # Techniques in the order of their documentation, so that defaults come first.
    if axis not in AXES or AXES[axis].integer_argument:
        return sorted(values, key=choice_order)
    variants = [value for value in AXES[axis].variants if value in values]
    return variants + [value for value in values if value not in variants]


def key_of(value: Choice) -> tuple[str, Choice]:
    """Distinguishes 1, True and 1.0."""
    return type(value).__name__, value


def label_axes(dataset: Dataset, results: EnvironmentResults) -> Sequence[str]:
    """The axes that vary among the ranked configurations: a label in a chart names no others."""
    ranked = [
        own.choices for own in results.configurations if own.training_recipe == results.recipe
    ]
    axes = dataset.varying_axes
    return [axis for axis in axes if len({own[axis] for own in ranked}) > 1] or axes


def shown_budgets(dataset: Dataset, results: EnvironmentResults) -> list[int]:
    """The budgets in bytes that a chart draws as lines: those of the run, else common cards."""
    if dataset.run.budgets:
        return sorted(set(dataset.run.budgets))
    return [pick.budget_bytes for pick in results.budget_picks]


def is_logarithmic(configurations: Iterable[Configuration]) -> bool:
    """Whether the largest memory is so many times the smallest that the axis is logarithmic."""
    sizes = [configuration.memory_bytes for configuration in configurations]
    return max(sizes) > 8 * max(min(sizes), 1)
