"""Which configurations of a front a picture names, and where it writes their labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.configuration import Configuration
from orchestrator.reporting.plots.style import INK, SOFT

MAX_LABELS = 5
MIN_DISTANCE = 0.2
"""Of two labelled configurations, as a share of the front's width and height together."""

Line = tuple[Sequence[float], Sequence[float]]
"""The coordinates of points, or of a line's corners."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Label:
    """What to write at a place, in the axes' units."""

    x: float
    y: float
    text: str


def labelled(
    front: Sequence[Configuration], wanted: Sequence[Configuration]
) -> list[Configuration]:
    """The few configurations of a front to name, most important first.

    Its ends, those ``wanted``, then the ones furthest from all before.
    """
    ordered = (front[-1], front[0], *wanted)
    chosen = list({own.trial_ids: own for own in ordered}.values())[:MAX_LABELS]
    while len(chosen) < MAX_LABELS:
        distances = [(min(_distance(own, other, front) for other in chosen), own) for own in front]
        distance, furthest = max(distances, key=_first)
        if distance < MIN_DISTANCE:
            break
        chosen.append(furthest)
    return chosen


def _first(pair: tuple[float, Configuration]) -> float:
    return pair[0]


def _distance(one: Configuration, other: Configuration, front: Sequence[Configuration]) -> float:
    """The distance of two points, as shares of the front's width and height."""
    width = max(front[-1].memory_bytes - front[0].memory_bytes, 1)
    height = max(front[-1].samples_per_second, 1e-12)
    across = abs(one.memory_bytes - other.memory_bytes) / width
    return across + abs(one.samples_per_second - other.samples_per_second) / height


def write(axes: Any, labels: Sequence[Label], points: Line, lines: Sequence[Line]) -> None:
    """Write each label near its point, over nothing else; leave out one without room."""
    import textalloc
    from matplotlib.patheffects import withStroke

    texts: list[Any] = textalloc.allocate(
        axes,
        [label.x for label in labels],
        [label.y for label in labels],
        [label.text for label in labels],
        x_scatter=list(points[0]),
        y_scatter=list(points[1]),
        x_lines=[list(x) for x, _ in lines],
        y_lines=[list(y) for _, y in lines],
        textsize=8.5,
        textcolor=INK,
        linecolor=SOFT,
        linewidth=0.7,
        draw_all=False,
        avoid_label_lines_overlap=True,
        zorder=6,
        linespacing=1.25,
        parse_math=False,
    )[2]
    for text in texts:
        if text is not None:  # there was room
            text.set_path_effects([withStroke(linewidth=3, foreground="white")])
