"""An explanation as a picture: two trials' time and memory, bar under bar, and their losses."""

from collections.abc import Callable
from typing import Any

from orchestrator.analysis.explanation.result import Breakdown, Explanation, LossCurves
from orchestrator.analysis.loss_parity.windows import CheckState
from orchestrator.reporting.plots.style import FAINT, INK, PALETTE, SOFT, drawing, png
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.reporting.verbs.explanation import seconds
from orchestrator.units import memory

_HEADING = 0.66
"""Height of its two lines of text, in inches."""
_PANEL = 2.42
"""Height of each panel, in inches."""
MAX_PARTS = len(PALETTE) - 1
"""Parts with a colour of their own; smaller ones are drawn as one."""


def render(explanation: Explanation) -> bytes:
    """A PNG, 1600 pixels wide."""
    losses = explanation.losses
    height = _HEADING + _PANEL * (2 if losses is None else 3)
    with drawing(height) as figure:
        for index, (name, side) in enumerate((("A", explanation.before), ("B", explanation.after))):
            # 0.2 inches below the top edge, each line 0.27 inches below the former.
            y = 1 - (0.2 + 0.27 * index) / height
            figure.text(0.03, y, visible(f"{name}  {side.label}"), fontsize=11, va="top")
        breakdowns: list[tuple[str, Breakdown, Callable[[float], str]]] = [
            ("Time per sample", explanation.seconds_per_sample, seconds),
            ("Memory at the peak", explanation.memory_bytes, memory),
        ]
        for index, (title, breakdown, write) in enumerate(breakdowns):
            is_profiled = breakdown.source == "anatomy"
            source = "both profiled" if is_profiled else "from the table's columns"
            _bars(_panel(figure, index, height, f"{title}: {source}"), breakdown, write)
        if losses is not None:
            # Without a band, the losses were not checked.
            meaning = "not checked: a mismatch could be chance"
            if losses.state is not CheckState.NOT_CHECKED:
                meaning = "grey is where B's mean (dashed) matches A"
            _curves(_panel(figure, 2, height, f"Loss of each step; {meaning}"), losses)
        return png(figure)


def _panel(figure: Any, index: int, height: float, title: str) -> Any:
    """Axes with a title; ``index`` counts the panels from the top."""
    # 0.42 inches below the axes leave room for the numbers of the steps.
    bottom = height - _HEADING - _PANEL * (index + 1) + 0.42
    axes = figure.add_axes((0.05, bottom / height, 0.62, 1.6 / height))
    axes.set_title(title)
    axes.spines["bottom"].set_visible(False)
    return axes


def _curves(axes: Any, losses: LossCurves) -> None:
    """Both curves, over the band around the first one's mean that counts as a match."""
    for window in losses.windows:
        if window.has_power:
            # Half a step on either side fills the band.
            margin = window.allowed * window.scale
            low, high = window.reference - margin, window.reference + margin
            steps = (window.begin + 0.5, window.end + 0.5)
            axes.fill_between(steps, low, high, color=FAINT, alpha=0.5, linewidth=0)
            means = (window.own, window.own)
            axes.plot(steps, means, color=PALETTE[1], linewidth=1, linestyle="--")
    numbers = range(1, len(losses.after) + 1)
    curves = {"A": losses.before, "B": losses.after}
    for (name, curve), colour in zip(curves.items(), PALETTE, strict=False):
        axes.plot(
            numbers, curve, color=colour, label=name, linewidth=1.6, marker="o", markersize=2.5
        )
    axes.tick_params(labelsize=9)
    axes.xaxis.get_major_locator().set_params(integer=True)
    _legend(axes)


def _legend(axes: Any) -> None:
    axes.legend(bbox_to_anchor=(1.02, 1.02), loc="upper left", labelcolor=SOFT)


def _parts(breakdown: Breakdown) -> list[tuple[str, float, float]]:
    """(name, before, after): the largest first, the small ones as one; none is below zero."""
    listed = [(own.name, max(0.0, own.before), max(0.0, own.after)) for own in breakdown.terms]
    parts = [part for part in listed if max(part[1:]) > 0]
    parts.sort(key=lambda part: max(part[1:]), reverse=True)
    rest = parts[MAX_PARTS:]
    if rest:
        before, after = sum(part[1] for part in rest), sum(part[2] for part in rest)
        parts = [*parts[:MAX_PARTS], ("all else", before, after)]
    return parts or [("all", breakdown.before, breakdown.after)]


def _bars(axes: Any, breakdown: Breakdown, write: Callable[[float], str]) -> None:
    ends = [0.0, 0.0]
    for (name, before, after), colour in zip(_parts(breakdown), PALETTE, strict=False):
        look = {"height": 0.62, "edgecolor": "white", "linewidth": 0.8}
        axes.barh([0, 1], [before, after], left=ends, color=colour, label=visible(name), **look)
        ends = [ends[0] + before, ends[1] + after]
    for index, whole in enumerate((breakdown.before, breakdown.after)):
        axes.text(ends[index], index, f" {write(whole)}", va="center", fontsize=9.5)
    axes.set_yticks([0, 1], ["A", "B"], fontsize=11, color=INK)
    axes.invert_yaxis()
    # 16 % more than the longer bar leaves room for its figure.
    axes.set_xlim(0, 1.16 * max(ends))
    axes.set_xticks([])
    _legend(axes)
