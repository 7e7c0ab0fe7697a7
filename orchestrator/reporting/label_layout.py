"""Where a picture's labels go: beside their points, and none over another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.pareto import Point

MOST = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Label:
    """What to say of a place in the picture, in the axes' own units."""

    x: float
    y: float
    name: str
    figures: str


# Offsets in points, and alignments. Nothing can lie above and left of a frontier, so that is tried first.
_PLACES: tuple[tuple[float, float, str, str], ...] = tuple(
    (dx * far, dy * far, horizontal, vertical)
    for far in (1.0, 2.0, 3.2)
    for dx, dy, horizontal, vertical in (
        (-6, 6, "right", "bottom"),
        (0, 8, "center", "bottom"),
        (-9, 0, "right", "center"),
        (6, -6, "left", "top"),
        (9, 0, "left", "center"),
        (6, 6, "left", "bottom"),
        (-2, -8, "right", "top"),
    )
)


def key_points(front: Sequence[Point], wanted: Sequence[Point]) -> list[Point]:
    """The few points of a frontier to name, most important first: its ends, those ``wanted``, then the most apart."""
    chosen = list({id(point): point for point in (front[-1], front[0], *wanted)}.values())[:MOST]
    least, most, fastest = (
        front[0].memory_bytes,
        front[-1].memory_bytes,
        front[-1].samples_per_second,
    )

    def apart(one: Point, other: Point) -> float:
        across = abs(one.memory_bytes - other.memory_bytes) / max(most - least, 1)
        up = abs(one.samples_per_second - other.samples_per_second) / max(fastest, 1e-12)
        return across + up

    while len(chosen) < MOST:
        nearest = {id(point): min(apart(point, other) for other in chosen) for point in front}
        point = max(front, key=lambda p: nearest[id(p)])
        if nearest[id(point)] < 0.2:
            break
        chosen.append(point)
    return chosen


def place(axes: Any, labels: Sequence[Label], obstacles: Sequence[tuple[float, float]]) -> None:
    """Write each label where it covers no label before it and fewest ``obstacles``; leave out what finds no room."""
    from matplotlib.transforms import Bbox

    figure = axes.figure
    figure.draw_without_rendering()
    renderer, frame = figure.canvas.get_renderer(), axes.get_window_extent()
    dots = axes.transData.transform(obstacles)
    taken: list[Any] = []
    for label in labels:
        free: list[tuple[float, int, Any]] = []
        note = _write(axes, label)
        for rank, (dx, dy, horizontal, vertical) in enumerate(_PLACES):
            note.set(position=(dx, dy), ha=horizontal, va=vertical)
            box = note.get_window_extent(renderer).padded(3)
            inside = Bbox.intersection(box, frame)
            if inside is None or inside.width * inside.height < 0.999 * box.width * box.height:
                continue
            if not any(box.overlaps(other) for other in taken):
                free.append((box.count_contains(dots) + rank / 7, rank, box))
        if not free:
            note.remove()
            continue
        _, rank, box = min(free, key=lambda option: option[:2])
        dx, dy, horizontal, vertical = _PLACES[rank]
        note.set(position=(dx, dy), ha=horizontal, va=vertical)
        taken.append(box)


def _write(axes: Any, label: Label) -> Any:
    from matplotlib.patheffects import withStroke

    note = axes.annotate(
        f"{label.name}\n{label.figures}",
        (label.x, label.y),
        xytext=(0, 0),
        textcoords="offset points",
        fontsize=8.5,
        linespacing=1.25,
        color="#1b1f24",
        parse_math=False,
        zorder=6,
    )
    note.set_path_effects([withStroke(linewidth=3, foreground="white")])
    return note
