"""The frontier as a picture: memory against speed, for a README or a pull request."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from jobs.spec import Choice
from orchestrator.results.frontier import Point
from orchestrator.results.ranking import GIB
from orchestrator.results.summary import Cohort, Summary
from orchestrator.results.words import memory, number

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f5539", "#6c757d")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
MIB = 2**20


def legible_axes(summary: Summary, cohort: Cohort) -> tuple[str, ...]:
    """The axes fit for colours and markers, best first: named variants before numbers, 2 to 8 values each."""
    seen = {axis: {point.choices[axis] for point in cohort.points} for axis in summary.axes}
    fit = [axis for axis, values in seen.items() if 2 <= len(values) <= len(PALETTE)]
    return tuple(sorted(fit, key=lambda axis: all(isinstance(value, (int, float)) for value in seen[axis])))


def render(
    summary: Summary, *, colour: str | None = None, marker: str | None = None, log_memory: bool | None = None
) -> bytes:
    """A PNG of the largest cohort, 1600 × 1000 pixels.

    ``colour`` and ``marker`` name axes; the best two are taken otherwise. ``log_memory`` is chosen by the spread.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.25), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if summary.cohorts:
        cohort = summary.cohorts[0]
        fit = [axis for axis in legible_axes(summary, cohort) if axis not in (colour, marker)]
        colour = colour or (fit.pop(0) if fit else None)
        marker = marker or (fit.pop(0) if fit else None)
        _legends(figure, _scatter(axes, cohort, colour, marker))
        _front(axes, summary, cohort)
        _dress(axes, summary, cohort, log_memory)
    else:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "No trial ended ok", ha="center", va="center", fontsize=16)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _unit(cohort: Cohort) -> tuple[str, int]:
    return ("GiB", GIB) if max(point.memory_bytes for point in cohort.points) >= GIB else ("MiB", MIB)


def _values(cohort: Cohort, axis: str | None) -> list[Choice]:
    values = {point.choices[axis]: None for point in cohort.points} if axis else {None: None}
    return sorted(values, key=lambda value: (isinstance(value, str), value if isinstance(value, (int, float)) else 0))


def _scatter(
    axes: Any, cohort: Cohort, colour: str | None, marker_axis: str | None
) -> list[tuple[str | None, list[Choice], list[Any]]]:
    colours, markers = _values(cohort, colour), _values(cohort, marker_axis)
    _, unit = _unit(cohort)
    for hue, value in zip(PALETTE, colours, strict=False):
        for shape, other in zip(MARKERS, markers, strict=False):
            own = [p for p in cohort.points if _is(p, colour, value) and _is(p, marker_axis, other)]
            axes.scatter(
                [p.memory_bytes / unit for p in own],
                [p.samples_per_second for p in own],
                s=38,
                c=hue,
                marker=shape,
                alpha=0.75,
                linewidths=0.4,
                edgecolors="white",
                zorder=3,
            )
    dots = [axes.scatter([], [], s=38, c=hue) for hue in PALETTE[: len(colours)]]
    shapes = [axes.scatter([], [], s=38, c="#555555", marker=marker) for marker in MARKERS[: len(markers)]]
    return [(colour, colours, dots), (marker_axis, markers, shapes)]


def _is(point: Point, axis: str | None, value: Choice) -> bool:
    return axis is None or point.choices[axis] == value


def _legends(figure: Any, keys: Sequence[tuple[str | None, Sequence[Choice], Sequence[Any]]]) -> None:
    for corner, (axis, values, handles) in zip(("upper", "lower"), keys, strict=True):
        if axis is not None:
            names = [_literal(value) for value in values]
            legend = figure.legend(
                handles, names, title=axis, loc=f"outside right {corner}", frameon=False, alignment="left"
            )
            legend.get_title().set_fontweight("bold")


def _literal(value: object) -> str:
    return str(value).replace("$", r"\$")


def _front(axes: Any, summary: Summary, cohort: Cohort) -> None:
    _, unit = _unit(cohort)
    front = cohort.front
    memories = [point.memory_bytes / unit for point in front]
    speeds = [point.samples_per_second for point in front]
    mixed = len(cohort.fronts) > 1
    for own in cohort.fronts.values() if mixed else ():
        xs, ys = [point.memory_bytes / unit for point in own], [point.samples_per_second for point in own]
        axes.step(xs, ys, where="post", color="#222222", linewidth=0.8, alpha=0.25, zorder=1)
    axes.step(memories, speeds, where="post", color="#222222", linewidth=1.4, linestyle=":" if mixed else "-", zorder=2)
    axes.scatter(memories, speeds, s=110, facecolors="none", edgecolors="#222222", linewidths=1.2, zorder=4)
    leanest, fastest = (
        f"{summary.label(p)}\n{memory(p.memory_bytes)}, {number(p.samples_per_second)} samples/s"
        for p in (front[0], front[-1])
    )
    lead = {"arrowstyle": "-", "color": "#888888", "linewidth": 0.8, "shrinkB": 6}
    note = {"fontsize": 8.5, "zorder": 5, "parse_math": False, "va": "top", "textcoords": "axes fraction"}
    # Nothing can lie above and left of a frontier: that corner is free for words.
    axes.annotate(
        leanest,
        (memories[0], speeds[0]),
        xytext=(0.015, 0.99),
        ha="left",
        arrowprops={**lead, "relpos": (0, 0)},
        **note,
    )
    if len(front) > 1:
        axes.annotate(
            fastest,
            (memories[-1], speeds[-1]),
            xytext=(0.985, 0.99),
            ha="right",
            arrowprops={**lead, "relpos": (1, 0)},
            **note,
        )


def _dress(axes: Any, summary: Summary, cohort: Cohort, log_memory: bool | None) -> None:
    unit, _ = _unit(cohort)
    sizes = [point.memory_bytes for point in cohort.points]
    if log_memory if log_memory is not None else max(sizes) > 8 * max(min(sizes), 1):
        from matplotlib.ticker import FuncFormatter, NullFormatter

        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(x=0.08, y=0.16)
    axes.set_ylim(bottom=0)
    axes.grid(True, color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel(f"{cohort.memory_words}, {unit}")
    axes.set_ylabel("samples per second")
    title = f"{summary.run.name}: {len(cohort.points)} configurations on {cohort.hardware}"
    if len(cohort.fronts) > 1:
        axes.set_title("dotted: across trainings; thin: each training", loc="right", fontsize=9, color="#555555")
    axes.set_title(title, loc="left", fontweight="bold", fontsize=11.5, pad=12, parse_math=False)
