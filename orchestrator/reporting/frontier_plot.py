"""The frontier as a picture: memory against speed, for a README or a pull request."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.record import Outcome
from jobs.spec import Choice
from orchestrator.analysis.budgets import GIB
from orchestrator.analysis.frame.points import Points
from orchestrator.analysis.pareto import Point
from orchestrator.analysis.summary import Cohort, Summary, label
from orchestrator.reporting.label_layout import Label, key_points, place
from orchestrator.units import count, memory, number

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f5539", "#6c757d")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
INK, SOFT, FAINT = "#1b1f24", "#57606a", "#d8dee4"
MIB = 2**20
MOST_RINGS = 40
PREFERRED = {"colour": ("precision", "optimizer"), "marker": ("activations", "optimizer")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoding:
    """An axis shown by colours or by markers: its values, and the sign of each."""

    axis: str | None
    signs: dict[Choice, str]

    def shown(self, points: Points) -> Iterator[tuple[str, Points]]:
        """Each sign and the points that have it, as they are first met."""
        if self.axis is None:
            yield self.signs[None], points
            return
        column = points.choices[self.axis]
        yield from (
            (self.signs[value], points.where(column.equal(value))) for value in column.met()
        )


def encodings(summary: Summary, cohort: Cohort) -> tuple[str | None, str | None]:
    """The axes for colours and for markers: precision and activations where they vary, else named ones before numbers.

    An axis needs 2 to 8 values to be told apart by either.
    """
    seen = {axis: cohort.points.choices[axis].met() for axis in summary.axes}
    fit = [axis for axis, values in seen.items() if 2 <= len(values) <= len(PALETTE)]
    fit.sort(key=lambda axis: all(isinstance(value, (int, float)) for value in seen[axis]))
    colour = next((axis for axis in (*PREFERRED["colour"], *fit) if axis in fit), None)
    left = [axis for axis in fit if axis != colour]
    return colour, next((axis for axis in (*PREFERRED["marker"], *left) if axis in left), None)


def render(
    summary: Summary,
    *,
    colour: str | None = None,
    marker: str | None = None,
    log_memory: bool | None = None,
) -> bytes:
    """A PNG of the largest cohort, 1600 × 1000 pixels.

    ``colour`` and ``marker`` name axes; the best two are taken otherwise. ``log_memory`` is chosen by the spread.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.25), dpi=160)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.072, 0.1, 0.725, 0.735))
    if summary.cohorts:
        cohort = summary.cohorts[0]
        best_colour, best_marker = encodings(summary, cohort)
        hues = _encoding(cohort, colour or best_colour, PALETTE)
        shapes = _encoding(cohort, marker or best_marker, MARKERS)
        _scatter(axes, cohort, hues, shapes)
        _fronts(axes, cohort)
        _dress(axes, cohort, log_memory)
        _budgets(axes, summary, cohort)
        _legend(figure, axes, cohort, hues, shapes)
        _title(figure, summary, cohort)
        _label(axes, summary, cohort)
    else:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "No trial ended ok", ha="center", va="center", fontsize=16)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _encoding(cohort: Cohort, axis: str | None, signs: Sequence[str]) -> Encoding:
    """Numbers by size, names by the speed they reached."""
    points, speeds = cohort.points, dict[Choice, float]()
    for value in points.choices[axis].met() if axis else [None]:
        own = points.where(points.choices[axis].equal(value)) if axis else points
        speeds[value] = float(own.samples_per_second.max())

    def order(value: Choice) -> tuple[bool, float, str]:
        return (
            not isinstance(value, (int, float)),
            float(value) if isinstance(value, (int, float)) else -speeds[value],
            str(value),
        )

    ordered = sorted(speeds, key=order)
    return Encoding(axis=axis, signs=dict(zip(ordered, signs, strict=False)))


def _unit(cohort: Cohort) -> tuple[str, int]:
    return ("GiB", GIB) if cohort.points.memory_bytes.max() >= GIB else ("MiB", MIB)


def _coordinates(points: Sequence[Point], unit: int) -> tuple[list[float], list[float]]:
    own = Points.of(points)
    return (own.memory_bytes / unit).tolist(), own.samples_per_second.tolist()


def _scatter(axes: Any, cohort: Cohort, hues: Encoding, shapes: Encoding) -> None:
    """The other trainings' points small and pale, those that are ranked over them."""
    _, unit = _unit(cohort)
    ranked = cohort.points.trainings.equal(cohort.training)
    for own in (True, False):
        size, alpha = (40, 0.9) if own else (20, 0.28)
        for shape, alike in shapes.shown(cohort.points.where(ranked == own)):
            for hue, members in hues.shown(alike):
                look = {
                    "s": size,
                    "alpha": alpha,
                    "c": hue,
                    "marker": shape,
                    "linewidths": 0.5,
                    "edgecolors": "white",
                }
                axes.scatter(*_coordinates(members, unit), **look, zorder=4 if own else 2)


def _fronts(axes: Any, cohort: Cohort) -> None:
    _, unit = _unit(cohort)
    own, across = _coordinates(cohort.front, unit), _coordinates(cohort.across, unit)
    if own != across:
        axes.step(*across, where="post", color=SOFT, linewidth=1.3, linestyle=(0, (1, 2)), zorder=3)
    axes.step(*own, where="post", color=INK, linewidth=1.8, zorder=3)
    ringed = cohort.front[:: -(-len(cohort.front) // MOST_RINGS)]
    axes.scatter(
        *_coordinates(ringed, unit),
        s=105,
        facecolors="none",
        edgecolors=INK,
        linewidths=1.2,
        zorder=5,
    )


def _dress(axes: Any, cohort: Cohort, log_memory: bool | None) -> None:
    unit, _ = _unit(cohort)
    sizes = cohort.points.memory_bytes
    if log_memory if log_memory is not None else sizes.max() > 8 * max(sizes.min(), 1):
        from matplotlib.ticker import FuncFormatter, NullLocator

        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.margins(x=0.06, y=0.12)
    axes.set_ylim(bottom=0)
    axes.grid(True, color="#eceff2", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(color=FAINT, labelcolor=SOFT, labelsize=9.5)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(FAINT)
    axes.set_xlabel(f"memory, {unit}", color=SOFT, fontsize=10)
    axes.set_ylabel("samples per second", color=SOFT, fontsize=10)


def _budgets(axes: Any, summary: Summary, cohort: Cohort) -> None:
    _, unit = _unit(cohort)
    least, most = axes.get_xlim()
    for budget in summary.run.budgets:
        if least < budget / unit < most:
            axes.axvline(budget / unit, color="#8fb4d9", linewidth=1, zorder=1)
            axes.annotate(
                memory(budget),
                (budget / unit, 1),
                xycoords=("data", "axes fraction"),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=8.5,
                color="#3f76ad",
            )


def _legend(figure: Any, axes: Any, cohort: Cohort, hues: Encoding, shapes: Encoding) -> None:
    """One column: what colours, markers and lines mean."""
    from matplotlib.lines import Line2D

    def dot(colour: str, marker: str) -> Any:
        return Line2D(
            [],
            [],
            color=colour,
            marker=marker,
            linestyle="",
            markersize=6.5,
            markeredgecolor="white",
        )

    sections = [
        (hues.axis, [(_short(value), dot(hue, "o")) for value, hue in hues.signs.items()]),
        (shapes.axis, [(_short(value), dot(SOFT, shape)) for value, shape in shapes.signs.items()]),
        ("frontier", _line_keys(cohort)),
    ]
    top = 0.835
    for heading, entries in sections:
        if heading is None:
            continue
        legend = figure.legend(
            [handle for _, handle in entries],
            [name for name, _ in entries],
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
        top -= box.height / figure.bbox.height + 0.018


def _line_keys(cohort: Cohort) -> list[tuple[str, Any]]:
    from matplotlib.lines import Line2D

    ring = Line2D(
        [], [], color=INK, linewidth=1.8, marker="o", markerfacecolor="none", markersize=9
    )
    lines = [
        (
            _short(cohort.training_name(cohort.training))
            if len(cohort.fronts) > 1
            else "best of all",
            ring,
        )
    ]
    if len(cohort.fronts) > 1:
        lines.append(
            ("across trainings", Line2D([], [], color=SOFT, linewidth=1.3, linestyle=(0, (1, 2))))
        )
        lines.append(
            (
                "trains differently",
                Line2D([], [], color=SOFT, marker="o", linestyle="", markersize=4, alpha=0.4),
            )
        )
    return lines


def _short(value: Choice) -> str:
    name = str(value)
    return name if len(name) <= 24 else f"{name[:23]}…"


def _title(figure: Any, summary: Summary, cohort: Cohort) -> None:
    title = (
        f"{summary.run.name}: memory against speed" if summary.run.name else "Memory against speed"
    )
    unmeasured = summary.counts.get(Outcome.SKIPPED, 0)
    measured = f"{count(len(cohort.points), 'configuration')} on {cohort.hardware}"
    left = f" ({unmeasured} more not measured)" if unmeasured else ""
    subtitle = f"{measured}{left}. Memory is {cohort.memory_words}."
    figure.text(
        0.018, 0.968, title, fontsize=15, fontweight="bold", color=INK, va="top", parse_math=False
    )
    figure.text(0.018, 0.912, subtitle, fontsize=9.5, color=SOFT, va="top", parse_math=False)


def _label(axes: Any, summary: Summary, cohort: Cohort) -> None:
    """Names for the frontier's key points, saying only in what the points of its training differ."""
    _, unit = _unit(cohort)
    front = cohort.front
    own = cohort.points.where(cohort.points.trainings.equal(cohort.training))
    varying = [axis for axis in summary.axes if len(own.choices[axis].met()) > 1] or summary.axes
    named = (
        [verdict.best for verdict in cohort.verdicts if verdict.best] if summary.run.budgets else []
    )
    labels = [
        Label(
            x=point.memory_bytes / unit,
            y=point.samples_per_second,
            name=label(point.choices, varying),
            figures=f"{memory(point.memory_bytes)}, {number(point.samples_per_second)}/s",
        )
        for point in key_points(front, named)
    ]
    lines = [*_along(_coordinates(front, unit)), *_along(_coordinates(cohort.across, unit))]
    place(axes, labels, [*zip(*_coordinates(own, unit), strict=True), *lines])


def _along(steps: tuple[list[float], list[float]]) -> list[tuple[float, float]]:
    """Places along a step line, close enough together that no label fits between two unseen."""
    places: list[tuple[float, float]] = []
    for (x, y), (then_x, then_y) in itertools.pairwise(zip(*steps, strict=True)):
        places += [(x + (then_x - x) * part / 12, y) for part in range(13)]
        places += [(then_x, y + (then_y - y) * part / 12) for part in range(13)]
    return places
