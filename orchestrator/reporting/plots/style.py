"""What all pictures share: their colours, and how a figure becomes a PNG."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jobs.spec import Choice

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f5539", "#6c757d")
"""Okabe and Ito's colours, which people with any colour vision can distinguish, and two more."""
RISING = ("#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39")
"""Viridis without its palest end, for numbers: the order is visible without a legend."""
MARKERS = ("o", "s", "^", "D", "v", "P", "h", "*")
"""matplotlib's names of the shapes that report.html draws in the same order."""
INK = "#1b1f24"
SOFT = "#57606a"
FAINT = "#d8dee4"
"""Text, secondary text, and lines that stay in the background."""
_DOTS_PER_INCH = 160


def colours_of(values: Sequence[Choice]) -> list[str]:
    """A colour for each value of an axis, the same everywhere: of more than two numbers, lighter
    ones for larger; otherwise those of the palette, then different hues."""
    last = len(values) - 1
    if last > 1 and all(isinstance(value, (int, float)) for value in values):
        return [RISING[round(index * (len(RISING) - 1) / last)] for index in range(len(values))]
    colours = list(PALETTE[: len(values)])
    for index in range(len(colours), len(values)):
        # Steps of 47 degrees repeat no hue before 360 values.
        colours.append(f"hsl({index * 47 % 360} 55% 50%)")
    return colours


@contextmanager
def drawing(width: float, height: float) -> Iterator[Any]:
    """An empty figure of a size in inches, which no window ever shows, and the style of its parts.
    Text is never read as mathematics, because names of a run may hold dollar signs."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    style: Any = {
        "text.parse_math": False,
        "text.color": INK,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": SOFT,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlecolor": INK,
        "axes.titlelocation": "left",
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "xtick.color": FAINT,
        "xtick.labelcolor": SOFT,
        "ytick.color": FAINT,
        "ytick.labelcolor": SOFT,
        "legend.fontsize": 9,
        "legend.frameon": False,
    }
    with matplotlib.rc_context(style):
        # Agg needs no display, and draws the same picture on every machine.
        figure = Figure(figsize=(width, height), dpi=_DOTS_PER_INCH)
        FigureCanvasAgg(figure)
        yield figure


def png(figure: Any) -> bytes:
    """The figure's picture; the same bytes for the same figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
