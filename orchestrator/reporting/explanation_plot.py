"""An explanation as a picture: where the two trials' time and memory went, bar under bar, and their losses."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from orchestrator.analysis.explanation import Account, Explanation
from orchestrator.analysis.loss_curves import LossCurves
from orchestrator.reporting.explanation import seconds
from orchestrator.reporting.frontier_plot import FAINT, INK, PALETTE, SOFT
from orchestrator.units import memory

_WIDTH, _HEADING, _PANEL = 10.0, 0.66, 2.42  # inches
MOST_PARTS = len(PALETTE) - 1
"""Parts with a colour of their own; what is less is drawn as one."""


def render(found: Explanation) -> bytes:
    """A PNG, 1600 pixels wide."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    accounts = (
        ("Time a sample", found.seconds_per_sample, seconds),
        ("Memory at the peak", found.memory_bytes, memory),
    )
    height = _HEADING + _PANEL * (len(accounts) + (found.losses is not None))
    figure = Figure(figsize=(_WIDTH, height), dpi=160)
    FigureCanvasAgg(figure)
    for place, side in enumerate((found.before, found.after)):
        text = f"{'AB'[place]}  {side.label}"
        figure.text(
            0.03,
            1 - (0.2 + 0.27 * place) / height,
            text,
            fontsize=11,
            color=INK,
            va="top",
            parse_math=False,
        )
    for place, (title, account, written) in enumerate(accounts):
        axes = _panel(figure, place, height, f"{title}: {_heading(account)}")
        _bars(axes, account, written)
    if found.losses is not None:
        title = "Loss of each step; grey is what the guard allows B's mean (dashed)"
        _curves(_panel(figure, len(accounts), height, title), found.losses)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _panel(figure: Any, place: int, height: float, title: str) -> Any:
    """Axes with a title, so many panels from the top."""
    bottom = height - _HEADING - _PANEL * (place + 1) + 0.42
    axes = figure.add_axes((0.05, bottom / height, 0.62, 1.6 / height))
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "left")
        spine.set_color(FAINT)
    axes.tick_params(color=FAINT)
    return axes


def _curves(axes: Any, losses: LossCurves) -> None:
    """Both curves over the band around the first's mean that the guard leaves the second's, half by half."""
    for half in losses.halves:
        leeway = half.allowed * half.scale
        band = (half.reference - leeway, half.reference + leeway)
        span = (half.begin + 0.5, half.end + 0.5)
        axes.fill_between(span, *band, color=FAINT, alpha=0.5, linewidth=0)
        axes.plot(span, (half.own, half.own), color=PALETTE[1], linewidth=1, linestyle="--")
    steps = range(1, len(losses.after) + 1)
    for name, curve, colour in zip("AB", (losses.before, losses.after), PALETTE, strict=False):
        axes.plot(steps, curve, color=colour, label=name, linewidth=1.6, marker="o", markersize=2.5)
    axes.tick_params(labelsize=9, labelcolor=SOFT)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(
        bbox_to_anchor=(1.02, 1.02), loc="upper left", frameon=False, fontsize=9, labelcolor=SOFT
    )


def _heading(account: Account) -> str:
    return (
        "both taken apart" if account.source == "anatomy" else "as far as the table's columns tell"
    )


def _parts(account: Account) -> list[tuple[str, float, float]]:
    """Name, before and after; parts below zero are not drawn, the small ones together."""
    parts = [(s.name, max(0.0, s.before), max(0.0, s.after)) for s in account.shares]
    parts = sorted((p for p in parts if max(p[1:])), key=lambda part: -max(part[1:]))
    if rest := parts[MOST_PARTS:]:
        parts = [
            *parts[:MOST_PARTS],
            ("all else", sum(p[1] for p in rest), sum(p[2] for p in rest)),
        ]
    return parts or [("all", account.before, account.after)]


def _bars(axes: Any, account: Account, written: Callable[[float], str]) -> None:
    starts = [0.0, 0.0]
    for (name, *sizes), colour in zip(_parts(account), PALETTE, strict=False):
        axes.barh(
            [0, 1],
            sizes,
            left=starts,
            height=0.62,
            color=colour,
            label=name,
            edgecolor="white",
            linewidth=0.8,
        )
        starts = [start + size for start, size in zip(starts, sizes, strict=True)]
    for place, (start, whole) in enumerate(
        zip(starts, (account.before, account.after), strict=True)
    ):
        axes.text(start, place, f" {written(whole)}", va="center", fontsize=9.5, color=INK)
    axes.set_yticks([0, 1], ["A", "B"], fontsize=11, color=INK)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.16 * max(starts))
    axes.set_xticks([])
    axes.legend(
        bbox_to_anchor=(1.02, 1.02), loc="upper left", frameon=False, fontsize=9, labelcolor=SOFT
    )
