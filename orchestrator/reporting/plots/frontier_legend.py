"""The legend of frontier.png: what colours, markers and lines mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.spec import Choice
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import EnvironmentResults
from orchestrator.reporting.configurations import recipe_name
from orchestrator.reporting.plots.style import INK, SOFT
from orchestrator.reporting.terminal.safe_text import visible

DOTTED = (0, (1, 2))
"""The style of the line across recipes."""
_MAX_NAME = 24


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoding:
    """An axis that is shown by colours or by markers."""

    axis: str | None
    """None: all configurations have the same sign."""
    signs: Mapping[Choice, str]
    """Value of the axis -> its colour or marker."""

    def sign_of(self, configuration: Configuration) -> str:
        """The colour or the marker of a configuration."""
        if self.axis is None:
            return self.signs[None]
        return self.signs[configuration.choices[self.axis]]


def draw_legend(
    figure: Any, results: EnvironmentResults, colours: Encoding, markers: Encoding
) -> None:
    """One column: what colours, markers and lines mean."""
    # As a share of the figure's height: the top of the axes beside the legend.
    top = 0.835
    if colours.axis is not None:
        dots = [(value, _dot(colour, "o")) for value, colour in colours.signs.items()]
        top -= _legend_section(figure, colours.axis, dots, top)
    if markers.axis is not None:
        shapes = [(value, _dot(SOFT, marker)) for value, marker in markers.signs.items()]
        top -= _legend_section(figure, markers.axis, shapes, top)
    _legend_section(figure, "Pareto front", _line_keys(results), top)


def _legend_section(
    figure: Any, heading: str, entries: Sequence[tuple[Choice, Any]], top: float
) -> float:
    """Draw a part of the legend below ``top``; returns the share of the figure that it takes."""
    legend = figure.legend(
        [handle for _, handle in entries],
        [_short(name) for name, _ in entries],
        title=visible(heading).replace("_", " ").replace("$", r"\$"),
        loc="upper left",
        bbox_to_anchor=(0.81, top),
        frameon=False,
        alignment="left",
        fontsize=9,
        labelcolor=INK,
        borderaxespad=0,
    )
    legend.get_title().set(fontweight="bold", fontsize=9)
    for name in legend.get_texts():
        name.set_parse_math(False)
    # The legend's height in pixels as a share of the figure, and a gap to the next one.
    box = legend.get_window_extent(figure.canvas.get_renderer())
    return float(box.height / figure.bbox.height + 0.018)


def _dot(colour: str, marker: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], color=colour, marker=marker, linestyle="", markersize=6.5, markeredgecolor="white"
    )


def _line_keys(results: EnvironmentResults) -> list[tuple[Choice, Any]]:
    """The entries of the Pareto front: text and line style of each."""
    from matplotlib.lines import Line2D

    # With several recipes there are several fronts, so the line is named by its recipe.
    has_other_recipes = len(results.fronts) > 1
    front_name = "no other is better"
    if has_other_recipes:
        front_name = recipe_name(results, results.recipe)
    ring = Line2D(
        [], [], color=INK, linewidth=1.8, marker="o", markerfacecolor="none", markersize=9
    )
    keys: list[tuple[Choice, Any]] = [(front_name, ring)]
    if has_other_recipes:
        dotted = Line2D([], [], color=SOFT, linewidth=1.3, linestyle=DOTTED)
        pale = Line2D([], [], color=SOFT, marker="o", linestyle="", markersize=4, alpha=0.4)
        keys += [("across recipes", dotted), ("other recipes", pale)]
    return keys


def _short(value: Choice) -> str:
    name = visible(str(value))
    if len(name) <= _MAX_NAME:
        return name
    return f"{name[: _MAX_NAME - 1]}…"
