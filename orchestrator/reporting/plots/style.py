"""What all pictures share: their colours, and how a figure becomes a PNG."""

from __future__ import annotations

import io
from typing import Any

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f5539", "#6c757d")
"""Okabe and Ito's colours, which people with any colour vision can distinguish, and two more."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
INK = "#1b1f24"
SOFT = "#57606a"
FAINT = "#d8dee4"
"""Text, secondary text, and lines that stay in the background."""
_DOTS_PER_INCH = 160


def new_figure(width: float, height: float) -> Any:
    """An empty figure of a size in inches, which no window ever shows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=_DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    return figure


def png(figure: Any) -> bytes:
    """The figure's picture; the same bytes for the same figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
