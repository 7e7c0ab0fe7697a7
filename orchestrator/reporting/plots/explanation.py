"""An explanation as a picture: two trials' time and memory, bar under bar, and their losses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.explanation import Breakdown, Explanation, LossCurves
from orchestrator.analysis.loss_parity.windows import CheckState, LossWindow
from orchestrator.reporting.explanation import seconds
from orchestrator.reporting.plots.style import FAINT, INK, PALETTE, SOFT, new_figure, png
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.units import memory

_WIDTH = 10.0
"""Width of the picture, in inches."""
_HEADING = 0.66
"""Height of its two lines of text, in inches."""
_PANEL = 2.42
"""Height of each panel, in inches."""
MAX_PARTS = len(PALETTE) - 1
"""Parts with a colour of their own; smaller ones are drawn as one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """One part of a bar, in both trials."""

    name: str
    before: float
    after: float


def render(explanation: Explanation) -> bytes:
    """A PNG, 1600 pixels wide."""
    losses = explanation.losses
    panels = 2
    if losses is not None:
        panels += 1
    # The picture grows with its panels.
    height = _HEADING + _PANEL * panels
    figure = new_figure(_WIDTH, height)
    _heading(figure, explanation, height)
    breakdowns: list[tuple[str, Breakdown, Callable[[float], str]]] = [
        ("Time per sample", explanation.seconds_per_sample, seconds),
        ("Memory at the peak", explanation.memory_bytes, memory),
    ]
    for index, (title, breakdown, write) in enumerate(breakdowns):
        axes = _panel(figure, index, height, f"{title}: {_source(breakdown)}")
        _bars(axes, breakdown, write)
    if losses is not None:
        _curves(_panel(figure, panels - 1, height, _losses_title(losses)), losses)
    return png(figure)


def _losses_title(losses: LossCurves) -> str:
    """What the band means; without a band, that the losses were not checked."""
    if losses.state is CheckState.NOT_CHECKED:
        return "Loss of each step; not checked: over so few steps a mismatch could be chance"
    return "Loss of each step; grey is where B's mean (dashed) matches A"


def _heading(figure: Any, explanation: Explanation, height: float) -> None:
    """The names of the two trials."""
    sides = {"A": explanation.before, "B": explanation.after}
    for index, (name, side) in enumerate(sides.items()):
        # 0.2 inches below the top edge, each line 0.27 inches below the former.
        y = 1 - (0.2 + 0.27 * index) / height
        text = visible(f"{name}  {side.label}")
        figure.text(0.03, y, text, fontsize=11, color=INK, va="top", parse_math=False)


def _panel(figure: Any, index: int, height: float, title: str) -> Any:
    """Axes with a title; ``index`` counts the panels from the top."""
    # 0.42 inches below the axes leave room for the numbers of the steps.
    bottom = height - _HEADING - _PANEL * (index + 1) + 0.42
    axes = figure.add_axes((0.05, bottom / height, 0.62, 1.6 / height))
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "left")
        spine.set_color(FAINT)
    axes.tick_params(color=FAINT)
    return axes


def _curves(axes: Any, losses: LossCurves) -> None:
    """Both curves, over the band around the first one's mean that counts as a match."""
    for window in losses.windows:
        if window.has_power:
            _band(axes, window)
    numbers = range(1, len(losses.after) + 1)
    curves = {"A": losses.before, "B": losses.after}
    for (name, curve), colour in zip(curves.items(), PALETTE, strict=False):
        axes.plot(
            numbers, curve, color=colour, label=name, linewidth=1.6, marker="o", markersize=2.5
        )
    axes.tick_params(labelsize=9, labelcolor=SOFT)
    axes.xaxis.get_major_locator().set_params(integer=True)
    _legend(axes)


def _band(axes: Any, window: LossWindow) -> None:
    """The band that counts as a match in this window, and the second trial's mean."""
    # The bound is relative to the window's scale; half a step on either side fills the band.
    margin = window.allowed * window.scale
    steps = (window.begin + 0.5, window.end + 0.5)
    axes.fill_between(
        steps,
        window.reference - margin,
        window.reference + margin,
        color=FAINT,
        alpha=0.5,
        linewidth=0,
    )
    axes.plot(steps, (window.own, window.own), color=PALETTE[1], linewidth=1, linestyle="--")


def _legend(axes: Any) -> None:
    axes.legend(
        bbox_to_anchor=(1.02, 1.02), loc="upper left", frameon=False, fontsize=9, labelcolor=SOFT
    )


def _source(breakdown: Breakdown) -> str:
    if breakdown.source == "anatomy":
        return "both profiled"
    return "from the table's columns"


def _parts(breakdown: Breakdown) -> list[_Part]:
    """The largest first, the small ones as one; parts below zero are not drawn."""
    parts = []
    for term in breakdown.terms:
        part = _Part(name=term.name, before=max(0.0, term.before), after=max(0.0, term.after))
        if max(part.before, part.after) > 0:
            parts.append(part)
    # The largest parts have the palette's first colours.
    parts.sort(key=_largest, reverse=True)
    rest = parts[MAX_PARTS:]
    if rest:
        before = sum(part.before for part in rest)
        after = sum(part.after for part in rest)
        parts = [*parts[:MAX_PARTS], _Part(name="all else", before=before, after=after)]
    return parts or [_Part(name="all", before=breakdown.before, after=breakdown.after)]


def _largest(part: _Part) -> float:
    return max(part.before, part.after)


def _bars(axes: Any, breakdown: Breakdown, write: Callable[[float], str]) -> None:
    ends = _stacked(axes, _parts(breakdown))
    for index, whole in enumerate((breakdown.before, breakdown.after)):
        axes.text(ends[index], index, f" {write(whole)}", va="center", fontsize=9.5, color=INK)
    axes.set_yticks([0, 1], ["A", "B"], fontsize=11, color=INK)
    axes.invert_yaxis()
    # 16 % more than the longer bar leaves room for its figure.
    axes.set_xlim(0, 1.16 * max(ends))
    axes.set_xticks([])
    _legend(axes)


def _stacked(axes: Any, parts: Iterable[_Part]) -> list[float]:
    """Draw both bars; returns where they end."""
    # Each part begins where the one before ended, in both bars.
    ends = [0.0, 0.0]
    for part, colour in zip(parts, PALETTE, strict=False):
        axes.barh(
            [0, 1],
            [part.before, part.after],
            left=ends,
            height=0.62,
            color=colour,
            label=visible(part.name),
            edgecolor="white",
            linewidth=0.8,
        )
        ends = [ends[0] + part.before, ends[1] + part.after]
    return ends
