"""The Pareto front as a picture: memory against speed, for a README or a pull request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobs.record import Outcome
from jobs.spec import Choice
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.labels import label as label_of
from orchestrator.reporting.configurations import memory_meaning
from orchestrator.reporting.plots.frontier_legend import DOTTED, Encoding, draw_legend
from orchestrator.reporting.plots.labels import Label, Line, labelled, write
from orchestrator.reporting.plots.style import (
    FAINT,
    INK,
    MARKERS,
    PALETTE,
    SOFT,
    new_figure,
    png,
)
from orchestrator.units import GIB, MIB, count, memory, number

MAX_RINGS = 40
MAX_SIGNS = len(PALETTE)
LOG_FROM = 8
"""Memory is logarithmic if the largest is more than this many times the smallest."""
_FIRST_COLOUR_AXES = ("precision", "optimizer")
_FIRST_MARKER_AXES = ("activations", "optimizer")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Picture:
    """The picture in the making."""

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
        sizes = [own.memory_bytes / self.unit for own in configurations]
        return sizes, [own.samples_per_second for own in configurations]


def encoded_axes(dataset: Dataset, results: EnvironmentResults) -> tuple[str | None, str | None]:
    """The axes for colours and for markers: preferred axes first, then names before numbers.

    An axis needs 2 to 8 values, so that its signs can be distinguished.
    """
    values = {axis: _values(results, axis) for axis in dataset.varying_axes}
    fitting = [axis for axis, own in values.items() if 2 <= len(own) <= MAX_SIGNS]
    fitting.sort(key=lambda axis: all(isinstance(value, (int, float)) for value in values[axis]))
    colour = _first_of((*_FIRST_COLOUR_AXES, *fitting), fitting)
    left = [axis for axis in fitting if axis != colour]
    return colour, _first_of((*_FIRST_MARKER_AXES, *left), left)


def _first_of(wanted: Sequence[str], candidates: Sequence[str]) -> str | None:
    return next((axis for axis in wanted if axis in candidates), None)


def _values(results: EnvironmentResults, axis: str) -> list[Choice]:
    return list(dict.fromkeys(own.choices[axis] for own in results.configurations))


def render(dataset: Dataset) -> bytes:
    """A PNG of the environment with most configurations, 1600 × 1000 pixels."""
    figure = new_figure(10, 6.25)
    axes = figure.add_axes((0.072, 0.1, 0.725, 0.735))
    if dataset.main is None:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "No trial ended ok", ha="center", va="center", fontsize=16)
    else:
        _draw(figure, axes, dataset, dataset.main)
    return png(figure)


def _draw(figure: Any, axes: Any, dataset: Dataset, results: EnvironmentResults) -> None:
    largest = max(own.memory_bytes for own in results.configurations)
    unit_name, unit = ("GiB", GIB) if largest >= GIB else ("MiB", MIB)
    picture = _Picture(
        figure=figure, axes=axes, dataset=dataset, results=results, unit_name=unit_name, unit=unit
    )
    colour_axis, marker_axis = encoded_axes(dataset, results)
    colours = _encoding(results, colour_axis, PALETTE)
    markers = _encoding(results, marker_axis, MARKERS)
    _scatter(picture, colours, markers)
    _fronts(picture)
    _dress(picture)
    _budgets(picture)
    draw_legend(figure, results, colours, markers)
    _title(picture)
    _labels(picture)


def _encoding(results: EnvironmentResults, axis: str | None, signs: Sequence[str]) -> Encoding:
    """Numbers by size, names by the speed they reached."""
    if axis is None:
        return Encoding(axis=None, signs={None: signs[0]})
    speeds: dict[Choice, float] = {}
    for own in results.configurations:
        value = own.choices[axis]
        speeds[value] = max(own.samples_per_second, speeds.get(value, 0.0))

    def order(value: Choice) -> tuple[bool, float, str]:
        is_number = isinstance(value, (int, float))
        return not is_number, float(value) if is_number else -speeds[value], str(value)  # type: ignore[arg-type]

    return Encoding(axis=axis, signs=dict(zip(sorted(speeds, key=order), signs, strict=False)))


def _scatter(picture: _Picture, colours: Encoding, markers: Encoding) -> None:
    """Other recipes' points small and pale, those of the ranked recipe over them."""
    groups: dict[tuple[bool, str, str], list[Configuration]] = {}
    for own in picture.results.configurations:
        is_ranked = own.training_recipe == picture.results.recipe
        key = (is_ranked, markers.sign_of(own), colours.sign_of(own))
        groups.setdefault(key, []).append(own)
    for (is_ranked, marker, colour), members in groups.items():
        picture.axes.scatter(
            *picture.coordinates(members),
            s=40 if is_ranked else 20,
            alpha=0.9 if is_ranked else 0.28,
            c=colour,
            marker=marker,
            linewidths=0.5,
            edgecolors="white",
            zorder=4 if is_ranked else 2,
        )


def _fronts(picture: _Picture) -> None:
    axes, front = picture.axes, picture.results.front
    own = picture.coordinates(front)
    across = picture.coordinates(picture.results.front_across_recipes)
    if own != across:
        axes.step(*across, where="post", color=SOFT, linewidth=1.3, linestyle=DOTTED, zorder=3)
    axes.step(*own, where="post", color=INK, linewidth=1.8, zorder=3)
    every = -(-len(front) // MAX_RINGS)
    rings = picture.coordinates(front[::every])
    axes.scatter(*rings, s=105, facecolors="none", edgecolors=INK, linewidths=1.2, zorder=5)


def _dress(picture: _Picture) -> None:
    axes = picture.axes
    sizes = [own.memory_bytes for own in picture.results.configurations]
    if max(sizes) > LOG_FROM * max(min(sizes), 1):
        from matplotlib.ticker import FormatStrFormatter, NullLocator

        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.margins(x=0.06, y=0.12)
    axes.set_ylim(bottom=0)
    axes.grid(True, color="#eceff2", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(color=FAINT, labelcolor=SOFT, labelsize=9.5)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(FAINT)
    axes.set_xlabel(f"memory, {picture.unit_name}", color=SOFT, fontsize=10)
    axes.set_ylabel("samples per second", color=SOFT, fontsize=10)


def _budgets(picture: _Picture) -> None:
    least, most = picture.axes.get_xlim()
    for budget in picture.dataset.run.budgets:
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
    results, rows = picture.results, picture.dataset.rows
    name = picture.dataset.run.name
    title = f"{name}: memory against speed" if name else "Memory against speed"
    skipped = sum(row["outcome"] == Outcome.SKIPPED for row in rows)
    measured = f"{count(len(results.configurations), 'configuration')} on {results.hardware}"
    more = f" ({skipped} more skipped)" if skipped else ""
    subtitle = f"{measured}{more}. Memory: {memory_meaning(results)}."
    heading = {"color": INK, "va": "top", "parse_math": False}
    picture.figure.text(0.018, 0.968, title, **heading, fontsize=15, fontweight="bold")
    picture.figure.text(0.018, 0.912, subtitle, **{**heading, "color": SOFT}, fontsize=9.5)


def _labels(picture: _Picture) -> None:
    """Names for a few configurations of the front, saying only what varies in its recipe."""
    results = picture.results
    ranked = [own for own in results.configurations if own.training_recipe == results.recipe]
    axes = _axes_of_labels(picture.dataset, ranked)
    wanted = []
    if picture.dataset.run.budgets:
        wanted = [pick.best for pick in results.budget_picks if pick.best is not None]
    labels = [_label(picture, own, axes) for own in labelled(results.front, wanted)]
    fronts = (results.front, results.front_across_recipes)
    lines = [_steps(picture.coordinates(front)) for front in fronts]
    write(picture.axes, labels, picture.coordinates(ranked), lines)


def _axes_of_labels(dataset: Dataset, ranked: Sequence[Configuration]) -> Sequence[str]:
    """The axes that vary among the ranked configurations."""
    values = {axis: {own.choices[axis] for own in ranked} for axis in dataset.varying_axes}
    varying = [axis for axis, met in values.items() if len(met) > 1]
    return varying or dataset.varying_axes


def _label(picture: _Picture, configuration: Configuration, axes: Sequence[str]) -> Label:
    size, speed = configuration.memory_bytes, configuration.samples_per_second
    name = label_of(configuration.choices, axes)
    text = f"{name}\n{memory(size)}, {number(speed)}/s"
    return Label(x=size / picture.unit, y=speed, text=text)


def _steps(corners: Line) -> Line:
    """The corners of a step line through points, each step at its end."""
    xs, ys = corners
    across: list[float] = []
    up: list[float] = []
    for place, x in enumerate(xs):
        if place:
            across.append(x)
            up.append(ys[place - 1])
        across.append(x)
        up.append(ys[place])
    return across, up
