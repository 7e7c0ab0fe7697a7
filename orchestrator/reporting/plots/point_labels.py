"""Which configurations of a front a picture names, and where it writes their labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.configuration import Configuration
from orchestrator.reporting.plots.style import INK, SOFT

MAX_LABELS = 5
MIN_DISTANCE = 0.2
"""Least distance of two labelled configurations: shares of the front's width and height, added."""

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
    """The few configurations of a front to name: its ends, those ``wanted``, then others."""
    by_trials = {item.trial_ids: item for item in (*front[-1:], *front[:1], *wanted)}
    chosen = list(by_trials.values())[:MAX_LABELS]
    while len(chosen) < MAX_LABELS:
        # Farthest-point sampling: next comes the configuration whose nearest label is furthest.
        distances = [min(_distance(item, other, front) for other in chosen) for item in front]
        largest = max(distances, default=0.0)
        if largest < MIN_DISTANCE:
            break
        chosen.append(front[distances.index(largest)])
    return chosen


def _distance(first: Configuration, second: Configuration, front: Sequence[Configuration]) -> float:
    # The lower bounds avoid a division by zero on a front of a single configuration.
    width = max(front[-1].memory_bytes - front[0].memory_bytes, 1)
    height = max(front[-1].samples_per_second, 1e-12)
    across = abs(first.memory_bytes - second.memory_bytes) / width
    return across + abs(first.samples_per_second - second.samples_per_second) / height


def write(axes: Any, labels: Sequence[Label], points: Line, lines: Sequence[Line]) -> None:
    """Write each label near its point, covering nothing. A label without room is left out."""
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
    )[2]
    for text in texts:
        # None stands for a label without room.
        if text is not None:
            text.set_path_effects([withStroke(linewidth=3, foreground="white")])
