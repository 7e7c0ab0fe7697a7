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

DOTTED = (0, (1, 2))
"""The style of the line across recipes."""
_MAX_NAME = 24


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoding:
    """An axis shown by colours or by markers: its values, and the sign of each."""

    axis: str | None
    """None: all configurations have the same sign."""
    signs: Mapping[Choice, str]

    def sign_of(self, configuration: Configuration) -> str:
        """The colour or the marker of a configuration."""
        return self.signs[configuration.choices[self.axis] if self.axis else None]


def draw_legend(
    figure: Any, results: EnvironmentResults, colours: Encoding, markers: Encoding
) -> None:
    """One column: what colours, markers and lines mean."""
    top = 0.835
    sections = [
        (colours.axis, [(value, _dot(hue, "o")) for value, hue in colours.signs.items()]),
        (markers.axis, [(value, _dot(SOFT, shape)) for value, shape in markers.signs.items()]),
        ("Pareto front", _line_keys(results)),
    ]
    for heading, entries in sections:
        if heading is not None:
            top -= _legend_section(figure, heading, entries, top)


def _legend_section(
    figure: Any, heading: str, entries: Sequence[tuple[Choice, Any]], top: float
) -> float:
    """Draw a part of the legend below ``top``; returns the share of the figure that it takes."""
    legend = figure.legend(
        [handle for _, handle in entries],
        [_short(name) for name, _ in entries],
        title=heading.replace("_", " ").replace("$", r"\$"),
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
    box = legend.get_window_extent(figure.canvas.get_renderer())
    return float(box.height / figure.bbox.height + 0.018)


def _dot(colour: str, marker: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], color=colour, marker=marker, linestyle="", markersize=6.5, markeredgecolor="white"
    )


def _line_keys(results: EnvironmentResults) -> list[tuple[Choice, Any]]:
    from matplotlib.lines import Line2D

    has_others = len(results.fronts) > 1
    ranked = recipe_name(results, results.recipe) if has_others else "no other is better"
    ring = Line2D(
        [], [], color=INK, linewidth=1.8, marker="o", markerfacecolor="none", markersize=9
    )
    keys: list[tuple[Choice, Any]] = [(ranked, ring)]
    if has_others:
        dotted = Line2D([], [], color=SOFT, linewidth=1.3, linestyle=DOTTED)
        pale = Line2D([], [], color=SOFT, marker="o", linestyle="", markersize=4, alpha=0.4)
        keys += [("across recipes", dotted), ("other recipes", pale)]
    return keys


def _short(value: Choice) -> str:
    name = str(value)
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
