"""What all pictures and the page share: axes shown, colours, and how a figure becomes a PNG."""

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.analysis.configuration import Configuration, choice_order
from orchestrator.analysis.dataset import Dataset, EnvironmentResults

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f5539", "#6c757d")
"""Okabe and Ito's colours, which people with any colour vision can distinguish, and two more."""
RISING = ("#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39")
"""Viridis without its palest end, for numbers: the order is visible without a legend."""
MARKERS = ("o", "s", "^", "D", "v", "P", "h", "*")
"""matplotlib's names of the shapes that report.html draws in the same order."""
INK = "#1b1f24"
SOFT = "#57606a"
FAINT = "#d8dee4"
"""Text, secondary text, and lines that stay in the background."""
_DOTS_PER_INCH = 160


def colours_of(values: Sequence[Choice]) -> list[str]:
    """A colour for each value of an axis, the same everywhere: of more than two numbers, lighter
    ones for larger; otherwise those of the palette, then different hues."""
    last = len(values) - 1
    if last > 1 and all(isinstance(value, (int, float)) for value in values):
        return [RISING[round(index * (len(RISING) - 1) / last)] for index in range(len(values))]
    colours = list(PALETTE[: len(values)])
    for index in range(len(colours), len(values)):
        # Steps of 47 degrees repeat no hue before 360 values.
        colours.append(f"hsl({index * 47 % 360} 55% 50%)")
    return colours


@contextmanager
def drawing(height: float) -> Iterator[Any]:
    """An empty figure, ten inches wide, which no window ever shows, and the style of its parts.
    Text is never read as mathematics, because names of a run may hold dollar signs."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    style: Any = {
        "text.parse_math": False,
        "text.color": INK,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": SOFT,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlecolor": INK,
        "axes.titlelocation": "left",
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "xtick.color": FAINT,
        "xtick.labelcolor": SOFT,
        "ytick.color": FAINT,
        "ytick.labelcolor": SOFT,
        "legend.fontsize": 9,
        "legend.frameon": False,
    }
    with matplotlib.rc_context(style):
        # Agg needs no display, and draws the same picture on every machine.
        figure = Figure(figsize=(10, height), dpi=_DOTS_PER_INCH)
        FigureCanvasAgg(figure)
        yield figure


def png(figure: Any) -> bytes:
    """The figure's picture; the same bytes for the same figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


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
