"""An explanation as a picture: where the two trials' time and memory went, bar under bar."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from orchestrator.results.explanation import Account, Explanation
from orchestrator.results.explanation_text import seconds
from orchestrator.results.page.picture import FAINT, INK, PALETTE, SOFT
from orchestrator.results.words import memory

MOST_PARTS = len(PALETTE) - 1
"""Parts with a colour of their own; what is less is drawn as one."""


def render(found: Explanation) -> bytes:
    """A PNG, 1600 × 880 pixels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5.5), dpi=160)
    FigureCanvasAgg(figure)
    for place, side in enumerate((found.before, found.after)):
        text = f"{'AB'[place]}  {side.label}"
        figure.text(0.03, 0.965 - 0.05 * place, text, fontsize=11, color=INK, va="top", parse_math=False)
    panels = (("Time a sample", found.seconds_per_sample, seconds), ("Memory at the peak", found.memory_bytes, memory))
    for place, (title, account, written) in enumerate(panels):
        axes = figure.add_axes((0.05, 0.5 - 0.44 * place, 0.62, 0.29))
        _bars(axes, account, written)
        axes.set_title(f"{title}: {_heading(account)}", loc="left", fontsize=11, fontweight="bold", color=INK)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _heading(account: Account) -> str:
    return "both taken apart" if account.source == "anatomy" else "as far as the table's columns tell"


def _parts(account: Account) -> list[tuple[str, float, float]]:
    """Name, before and after; parts below zero are not drawn, the small ones together."""
    parts = [(s.name, max(0.0, s.before), max(0.0, s.after)) for s in account.shares]
    parts = sorted((p for p in parts if max(p[1:])), key=lambda part: -max(part[1:]))
    if rest := parts[MOST_PARTS:]:
        parts = [*parts[:MOST_PARTS], ("all else", sum(p[1] for p in rest), sum(p[2] for p in rest))]
    return parts or [("all", account.before, account.after)]


def _bars(axes: Any, account: Account, written: Callable[[float], str]) -> None:
    starts = [0.0, 0.0]
    for (name, *sizes), colour in zip(_parts(account), PALETTE, strict=False):
        axes.barh([0, 1], sizes, left=starts, height=0.62, color=colour, label=name, edgecolor="white", linewidth=0.8)
        starts = [start + size for start, size in zip(starts, sizes, strict=True)]
    for place, (start, whole) in enumerate(zip(starts, (account.before, account.after), strict=True)):
        axes.text(start, place, f" {written(whole)}", va="center", fontsize=9.5, color=INK)
    axes.set_yticks([0, 1], ["A", "B"], fontsize=11, color=INK)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.16 * max(starts))
    axes.set_xticks([])
    for side, spine in axes.spines.items():
        spine.set_visible(side == "left")
        spine.set_color(FAINT)
    axes.tick_params(color=FAINT)
    axes.legend(bbox_to_anchor=(1.02, 1.02), loc="upper left", frameon=False, fontsize=9, labelcolor=SOFT)
