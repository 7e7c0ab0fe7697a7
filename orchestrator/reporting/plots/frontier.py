"""The Pareto front as a picture: memory against speed, for a README or a pull request."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.record import Outcome
from jobs.spec import Choice
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.grouping import grouped
from orchestrator.labels import label as label_of
from orchestrator.reporting.configurations import memory_meaning, recipe_name
from orchestrator.reporting.plots.point_labels import Label, Line, labelled, write
from orchestrator.reporting.plots.style import (
    INK,
    MARKERS,
    SOFT,
    colours_of,
    drawing,
    encoded_axes,
    is_logarithmic,
    label_axes,
    png,
    shown_budgets,
    values_of,
)
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.units import GIB, MIB, count, memory, number

MAX_RINGS = 40
"""Configurations of the front that get a ring, at most."""
DOTTED = (0, (1, 2))
"""The style of the line across recipes."""
_RANKED_POINTS = {"s": 40, "alpha": 0.9, "zorder": 4}
_OTHER_RECIPE_POINTS = {"s": 20, "alpha": 0.28, "zorder": 2}
"""Area of a point in square points, its opacity, and the layer that it is drawn in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Encoding:
    """An axis that is shown by colours or by markers."""

    axis: str | None
    """None: all configurations have the same sign."""
    signs: Mapping[Choice, str]
    """Value of the axis -> its colour or marker."""

    def sign_of(self, configuration: Configuration) -> str:
        return self.signs[None if self.axis is None else configuration.choices[self.axis]]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Picture:
    """The figure while it is drawn, with its data and the unit of its memory axis."""

    figure: Any
    axes: Any
    dataset: Dataset
    results: EnvironmentResults
    unit: int

    def coordinates(self, configurations: Iterable[Configuration]) -> Line:
        """Memory and speed, in the axes' units."""
        points = [(own.memory_bytes / self.unit, own.samples_per_second) for own in configurations]
        return [memory for memory, _ in points], [speed for _, speed in points]


def render(dataset: Dataset) -> bytes:
    """A PNG of the environment with the most configurations, 1600 × 1000 pixels."""
    with drawing(6.25) as figure:
        axes = figure.add_axes((0.072, 0.1, 0.725, 0.735))
        if dataset.main is None:
            axes.set_axis_off()
            axes.text(0.5, 0.5, "No trial ended ok", ha="center", va="center", fontsize=16)
        else:
            _draw(figure, axes, dataset, dataset.main)
        return png(figure)


def _draw(figure: Any, axes: Any, dataset: Dataset, results: EnvironmentResults) -> None:
    largest = max(own.memory_bytes for own in results.configurations)
    unit = GIB if largest >= GIB else MIB
    picture = _Picture(figure=figure, axes=axes, dataset=dataset, results=results, unit=unit)
    colour_axis, marker_axis = encoded_axes(dataset, results)
    colours = _encoding(results, colour_axis, colours_of)
    markers = _encoding(results, marker_axis, lambda values: MARKERS[: len(values)])
    _scatter(picture, colours, markers)
    _fronts(picture)
    _dress(picture)
    _budgets(picture)
    _legends(picture, colours, markers)
    _title(picture)
    _labels(picture)


def _encoding(
    results: EnvironmentResults,
    axis: str | None,
    signs_of: Callable[[Sequence[Choice]], Sequence[str]],
) -> _Encoding:
    values = [None] if axis is None else values_of(axis, results.configurations)
    return _Encoding(axis=axis, signs=dict(zip(values, signs_of(values), strict=True)))


def _scatter(picture: _Picture, colours: _Encoding, markers: _Encoding) -> None:
    # matplotlib draws one marker per call, so points that look the same are drawn together.
    def look_of(own: Configuration) -> tuple[bool, str, str]:
        is_ranked = own.training_recipe == picture.results.recipe
        return is_ranked, markers.sign_of(own), colours.sign_of(own)

    groups = grouped(picture.results.configurations, look_of)
    for (is_ranked, marker, colour), members in groups.items():
        emphasis = _RANKED_POINTS if is_ranked else _OTHER_RECIPE_POINTS
        points = picture.coordinates(members)
        look = {"linewidths": 0.5, "edgecolors": "white", **emphasis}
        picture.axes.scatter(*points, c=colour, marker=marker, **look)


def _fronts(picture: _Picture) -> None:
    axes = picture.axes
    front = picture.results.front
    ranked = picture.coordinates(front)
    across = picture.coordinates(picture.results.front_across_recipes)
    if ranked != across:
        axes.step(*across, where="post", color=SOFT, linewidth=1.3, linestyle=DOTTED, zorder=3)
    axes.step(*ranked, where="post", color=INK, linewidth=1.8, zorder=3)
    # Every n-th configuration of a long front has a ring; n is rounded up. The front is empty if no
    # training is sound, as with losses that are not finite.
    every = -(-len(front) // MAX_RINGS) or 1
    rings = picture.coordinates(front[::every])
    axes.scatter(*rings, s=105, facecolors="none", edgecolors=INK, linewidths=1.2, zorder=5)


def _dress(picture: _Picture) -> None:
    from matplotlib.ticker import FormatStrFormatter, NullLocator

    axes = picture.axes
    if is_logarithmic(picture.results.configurations):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.margins(x=0.06, y=0.12)
    # Speeds start at zero, so that heights compare.
    axes.set_ylim(bottom=0)
    axes.grid(True, color="#eceff2", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9.5)
    axes.set_xlabel(f"memory, {'GiB' if picture.unit == GIB else 'MiB'}")
    axes.set_ylabel("samples per second")


def _budgets(picture: _Picture) -> None:
    axes = picture.axes
    least, most = axes.get_xlim()
    # The axis is widened to show budgets that the run names, by two percent more so that no line
    # touches the frame. It is not widened for the sizes of common cards.
    named = [budget / picture.unit for budget in picture.dataset.run.budgets]
    if named:
        least, most = min(least, min(named) / 1.02), max(most, max(named) * 1.02)
        axes.set_xlim(least, most)
    for budget in shown_budgets(picture.dataset, picture.results):
        x = budget / picture.unit
        if least < x < most:
            axes.axvline(x, color="#8fb4d9", linewidth=1, zorder=1)
            axes.annotate(
                memory(budget),
                (x, 1),
                xycoords=("data", "axes fraction"),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=8.5,
                color="#3f76ad",
            )


def _legends(picture: _Picture, colours: _Encoding, markers: _Encoding) -> None:
    """One column beside the axes: what colours, markers and lines mean."""
    from matplotlib.lines import Line2D

    def dot(colour: str, marker: str) -> Any:
        look: dict[str, Any] = {"linestyle": "", "markersize": 6.5, "markeredgecolor": "white"}
        return Line2D([], [], color=colour, marker=marker, **look)

    results = picture.results
    ring = Line2D(
        [], [], color=INK, linewidth=1.8, marker="o", markerfacecolor="none", markersize=9
    )
    lines: list[tuple[Choice, Any]] = [("no other is better", ring)]
    # With several recipes there are several fronts, so the line is named by its recipe.
    if len(results.fronts) > 1:
        dotted = Line2D([], [], color=SOFT, linewidth=1.3, linestyle=DOTTED)
        pale = Line2D([], [], color=SOFT, marker="o", linestyle="", markersize=4, alpha=0.4)
        named = (recipe_name(results, results.recipe), ring)
        lines = [named, ("across recipes", dotted), ("other recipes", pale)]
    # As a share of the figure's height: the top of the axes beside the legend.
    top = 0.835
    for heading, entries in (
        (colours.axis, [(value, dot(colour, "o")) for value, colour in colours.signs.items()]),
        (markers.axis, [(value, dot(SOFT, marker)) for value, marker in markers.signs.items()]),
        ("Pareto front", lines),
    ):
        if heading is not None:
            top -= _legend(picture.figure, heading, entries, top)


def _legend(figure: Any, heading: str, entries: Sequence[tuple[Choice, Any]], top: float) -> float:
    """Draw a part of the legend below ``top``; returns the share of the figure that it takes."""
    names = [visible(str(name)) for name, _ in entries]
    legend = figure.legend(
        [handle for _, handle in entries],
        [name if len(name) <= 24 else f"{name[:23]}…" for name in names],
        title=visible(heading).replace("_", " "),
        title_fontproperties={"weight": "bold", "size": 9},
        loc="upper left",
        bbox_to_anchor=(0.81, top),
        alignment="left",
        borderaxespad=0,
    )
    box = legend.get_window_extent(figure.canvas.get_renderer())
    return float(box.height / figure.bbox.height + 0.018)


def _title(picture: _Picture) -> None:
    results, name = picture.results, picture.dataset.run.name
    title = f"{name}: memory against speed" if name else "Memory against speed"
    measured = f"{count(len(results.configurations), 'configuration')} on {results.hardware}"
    skipped = sum(row["outcome"] == Outcome.SKIPPED for row in picture.dataset.rows)
    more = f" ({skipped} more skipped)" if skipped else ""
    subtitle = f"{measured}{more}. Memory: {memory_meaning(results)}."
    text = picture.figure.text
    text(0.018, 0.968, visible(title), va="top", fontsize=15, fontweight="bold")
    text(0.018, 0.912, visible(subtitle), va="top", color=SOFT, fontsize=9.5)


def _labels(picture: _Picture) -> None:
    results = picture.results
    ranked = [item for item in results.configurations if item.training_recipe == results.recipe]
    axes = label_axes(picture.dataset, results)
    wanted: list[Configuration] = []
    if picture.dataset.run.budgets:
        wanted = [pick.best for pick in results.budget_picks if pick.best is not None]
    labels = []
    for own in labelled(results.front, wanted):
        name = visible(label_of(own.choices, axes))
        speed = own.samples_per_second
        text = f"{name}\n{memory(own.memory_bytes)}, {number(speed)}/s"
        labels.append(Label(x=own.memory_bytes / picture.unit, y=speed, text=text))
    fronts = (results.front, results.front_across_recipes)
    lines = [_steps(picture.coordinates(front)) for front in fronts]
    write(picture.axes, labels, picture.coordinates(ranked), lines)


def _steps(corners: Line) -> Line:
    """The corners of a step line through points. Each step rises at the next point."""
    xs, ys = corners
    # The line keeps the height of the point before until a point, then rises.
    across = [x for x in xs for _ in range(2)][1:]
    up = [y for y in ys for _ in range(2)][:-1]
    return across, up
