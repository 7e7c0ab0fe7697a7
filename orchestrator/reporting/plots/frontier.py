"""The Pareto front as a picture: memory against speed, for a README or a pull request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.record import Outcome
from jobs.spec import Choice
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.labels import label as label_of
from orchestrator.reporting.configurations import memory_meaning
from orchestrator.reporting.plots.encoding import (
    encoded_axes,
    is_logarithmic,
    label_axes,
    shown_budgets,
    values_of,
)
from orchestrator.reporting.plots.frontier_legend import DOTTED, Encoding, draw_legend
from orchestrator.reporting.plots.labels import Label, Line, labelled, write
from orchestrator.reporting.plots.style import (
    FAINT,
    INK,
    MARKERS,
    SOFT,
    colours_of,
    new_figure,
    png,
)
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.units import GIB, MIB, count, memory, number

MAX_RINGS = 40
"""Configurations of the front that get a ring, at most."""
_RANKED_POINTS = {"s": 40, "alpha": 0.9, "zorder": 4}
_OTHER_RECIPE_POINTS = {"s": 20, "alpha": 0.28, "zorder": 2}
"""Area of a point in square points, its opacity, and the layer that it is drawn in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Picture:
    """The figure while it is drawn, with its data and the unit of its memory axis."""

    figure: Any
    axes: Any
    dataset: Dataset
    results: EnvironmentResults
    unit_name: str
    unit: int

    def coordinates(
        self, configurations: Sequence[Configuration]
    ) -> tuple[list[float], list[float]]:
        """Memory and speed, in the axes' units."""
        sizes: list[float] = []
        speeds: list[float] = []
        for configuration in configurations:
            sizes.append(configuration.memory_bytes / self.unit)
            speeds.append(configuration.samples_per_second)
        return sizes, speeds


def render(dataset: Dataset) -> bytes:
    """A PNG of the environment with the most configurations, 1600 × 1000 pixels."""
    figure = new_figure(10, 6.25)
    axes = figure.add_axes((0.072, 0.1, 0.725, 0.735))
    if dataset.main is None:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "No trial ended ok", ha="center", va="center", fontsize=16)
    else:
        _draw(figure, axes, dataset, dataset.main)
    return png(figure)


def _draw(figure: Any, axes: Any, dataset: Dataset, results: EnvironmentResults) -> None:
    picture = _picture(figure, axes, dataset, results)
    colour_axis, marker_axis = encoded_axes(dataset, results)
    colours = _encoding(results, colour_axis, colours_of)
    markers = _encoding(results, marker_axis, _markers_of)
    _scatter(picture, colours, markers)
    _fronts(picture)
    _dress(picture)
    _budgets(picture)
    draw_legend(figure, results, colours, markers)
    _title(picture)
    _labels(picture)


def _picture(figure: Any, axes: Any, dataset: Dataset, results: EnvironmentResults) -> _Picture:
    """The empty picture. Its unit is GiB if the largest memory is at least 1 GiB, else MiB."""
    largest = max(own.memory_bytes for own in results.configurations)
    unit_name, unit = "MiB", MIB
    if largest >= GIB:
        unit_name, unit = "GiB", GIB
    return _Picture(
        figure=figure, axes=axes, dataset=dataset, results=results, unit_name=unit_name, unit=unit
    )


def _encoding(
    results: EnvironmentResults, axis: str | None, signs_of: Callable[[Sequence[Choice]], list[str]]
) -> Encoding:
    """A colour or marker for each value of an axis, in the order that report.html lists them."""
    if axis is None:
        return Encoding(axis=None, signs={None: signs_of([None])[0]})
    values = values_of(axis, results.configurations)
    return Encoding(axis=axis, signs=dict(zip(values, signs_of(values), strict=True)))


def _markers_of(values: Sequence[Choice]) -> list[str]:
    return [MARKERS[index % len(MARKERS)] for index in range(len(values))]


def _scatter(picture: _Picture, colours: Encoding, markers: Encoding) -> None:
    """Draw a point for each configuration. Those of other training recipes are small and pale."""
    # matplotlib draws one marker per call, so points that look the same are drawn together.
    groups: dict[tuple[bool, str, str], list[Configuration]] = {}
    for configuration in picture.results.configurations:
        is_ranked = configuration.training_recipe == picture.results.recipe
        key = (is_ranked, markers.sign_of(configuration), colours.sign_of(configuration))
        groups.setdefault(key, []).append(configuration)
    for (is_ranked, marker, colour), members in groups.items():
        emphasis = _OTHER_RECIPE_POINTS
        if is_ranked:
            emphasis = _RANKED_POINTS
        picture.axes.scatter(
            *picture.coordinates(members),
            c=colour,
            marker=marker,
            linewidths=0.5,
            edgecolors="white",
            **emphasis,
        )


def _fronts(picture: _Picture) -> None:
    """Draw the front of the ranked recipe and, dotted, the front across all recipes."""
    axes = picture.axes
    front = picture.results.front
    ranked = picture.coordinates(front)
    across = picture.coordinates(picture.results.front_across_recipes)
    if ranked != across:
        axes.step(*across, where="post", color=SOFT, linewidth=1.3, linestyle=DOTTED, zorder=3)
    axes.step(*ranked, where="post", color=INK, linewidth=1.8, zorder=3)
    # Every n-th configuration of a long front has a ring; n is rounded up.
    every = -(-len(front) // MAX_RINGS)
    rings = picture.coordinates(front[::every])
    axes.scatter(*rings, s=105, facecolors="none", edgecolors=INK, linewidths=1.2, zorder=5)


def _dress(picture: _Picture) -> None:
    """Set the scales, the grid, the ticks and the axis labels."""
    axes = picture.axes
    _scale(picture)
    # Room for the labels of the outermost points.
    axes.margins(x=0.06, y=0.12)
    # Speeds start at zero, so that heights compare.
    axes.set_ylim(bottom=0)
    axes.grid(True, color="#eceff2", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(color=FAINT, labelcolor=SOFT, labelsize=9.5)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(FAINT)
    axes.set_xlabel(f"memory, {picture.unit_name}", color=SOFT, fontsize=10)
    axes.set_ylabel("samples per second", color=SOFT, fontsize=10)


def _scale(picture: _Picture) -> None:
    """Give the memory a logarithmic scale if its sizes differ much."""
    if not is_logarithmic(picture.results.configurations):
        return
    from matplotlib.ticker import FormatStrFormatter, NullLocator

    picture.axes.set_xscale("log", base=2)
    picture.axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    picture.axes.xaxis.set_minor_locator(NullLocator())


def _budgets(picture: _Picture) -> None:
    """Draw a vertical line at each memory budget."""
    # The axis is widened to show budgets that the run names. It is not widened for the sizes of
    # common cards.
    named = picture.dataset.run.budgets
    if named:
        least, most = picture.axes.get_xlim()
        # A margin of two percent keeps the line away from the frame.
        margin = 1.02
        picture.axes.set_xlim(
            min(least, min(named) / picture.unit / margin),
            max(most, max(named) / picture.unit * margin),
        )
    least, most = picture.axes.get_xlim()
    for budget in shown_budgets(picture.dataset, picture.results):
        x = budget / picture.unit
        if least < x < most:
            picture.axes.axvline(x, color="#8fb4d9", linewidth=1, zorder=1)
            picture.axes.annotate(
                memory(budget),
                (x, 1),
                xycoords=("data", "axes fraction"),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=8.5,
                color="#3f76ad",
            )


def _title(picture: _Picture) -> None:
    # The title names the run. The subtitle says what was measured, and on which hardware.
    title = "Memory against speed"
    if picture.dataset.run.name:
        title = f"{picture.dataset.run.name}: memory against speed"
    heading = {"va": "top", "parse_math": False}
    text = picture.figure.text
    text(0.018, 0.968, visible(title), **heading, color=INK, fontsize=15, fontweight="bold")
    text(0.018, 0.912, visible(_subtitle(picture)), **heading, color=SOFT, fontsize=9.5)


def _subtitle(picture: _Picture) -> str:
    """How many configurations were measured, where, and what their memory means."""
    results = picture.results
    measured = f"{count(len(results.configurations), 'configuration')} on {results.hardware}"
    skipped = sum(row["outcome"] == Outcome.SKIPPED for row in picture.dataset.rows)
    if skipped:
        measured = f"{measured} ({skipped} more skipped)"
    return f"{measured}. Memory: {memory_meaning(results)}."


def _labels(picture: _Picture) -> None:
    """Write labels at a few configurations of the front.

    A label names only the axes that vary within the ranked recipe.
    """
    results = picture.results
    ranked = [item for item in results.configurations if item.training_recipe == results.recipe]
    axes = label_axes(picture.dataset, results)
    wanted: list[Configuration] = []
    # Label the picks of budgets that the run names, but not those of common card sizes.
    if picture.dataset.run.budgets:
        wanted = [pick.best for pick in results.budget_picks if pick.best is not None]
    labels = [_label(picture, own, axes) for own in labelled(results.front, wanted)]
    lines = [
        _steps(picture.coordinates(results.front)),
        _steps(picture.coordinates(results.front_across_recipes)),
    ]
    write(picture.axes, labels, picture.coordinates(ranked), lines)


def _label(picture: _Picture, configuration: Configuration, axes: Sequence[str]) -> Label:
    size = configuration.memory_bytes
    speed = configuration.samples_per_second
    name = visible(label_of(configuration.choices, axes))
    text = f"{name}\n{memory(size)}, {number(speed)}/s"
    return Label(x=size / picture.unit, y=speed, text=text)


def _steps(corners: Line) -> Line:
    """The corners of a step line through points. Each step rises at the next point."""
    xs, ys = corners
    across: list[float] = []
    up: list[float] = []
    for index, x in enumerate(xs):
        # The line keeps the height of the point before until here, then rises.
        if index:
            across.append(x)
            up.append(ys[index - 1])
        across.append(x)
        up.append(ys[index])
    return across, up
