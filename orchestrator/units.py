"""Units: sizes, durations and percentages, parsed from text and formatted for people."""

from __future__ import annotations

import math
import re

KIB = 2**10
MIB = 2**20
GIB = 2**30
HOUR_SECONDS = 3600

_SIZE_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
SIZE_PATTERN = r"(\d+(?:\.\d+)?) ?([KMGT]i?B|B)"
DURATION_PATTERN = r"(?:(\d+(?:\.\d+)?)h)? ?(?:(\d+(?:\.\d+)?)m)? ?(?:(\d+(?:\.\d+)?)s)?"


def size_bytes(value: object) -> int:
    """Bytes of ``16GiB``, ``24GB`` or a whole number. Raises ValueError."""
    if isinstance(value, str):
        match = re.fullmatch(SIZE_PATTERN, value.strip())
        if match:
            value = int(float(match[1]) * _SIZE_UNITS[match[2]])
    # To Python, True is the integer 1.
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError("must be a size above zero such as 16GiB, 24GB or a number of bytes")
    return value


def duration_seconds(value: object) -> float:
    """Seconds of ``300s``, ``5m``, ``1h30m`` or a number. Raises ValueError."""
    if isinstance(value, str):
        match = re.fullmatch(DURATION_PATTERN, value.strip())
        if match:
            hours, minutes, seconds = (float(part or 0) for part in match.groups())
            value = hours * HOUR_SECONDS + minutes * 60 + seconds
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ValueError("must be a time above zero such as 300s, 5m, 1h30m or a number of seconds")
    return float(value)


def memory(size: float | None) -> str:
    """Bytes in the unit that reads best: ``23.5 GiB``, ``312 MiB``; an en dash for None."""
    if size is None:
        return "–"
    # A difference of two sizes can be negative.
    if size < 0:
        return f"−{memory(-size)}"
    # The largest unit of which there is at least one; GiB is the largest of all, because people
    # compare a GPU's memory in GiB, however large it is.
    value = float(size)
    unit = "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < KIB or unit == "GiB":
            break
        value /= KIB
    # Three digits tell two configurations apart; more are below the allocator's own rounding.
    if value >= 100 or value == int(value):
        return f"{value:.0f} {unit}"
    if value >= 10:
        return f"{value:.1f} {unit}"
    return f"{value:.2f} {unit}"


def number(value: float | None) -> str:
    """Three significant digits without an exponent:

    ``345``, ``34.5``, ``0.0345``; an en dash for None.
    """
    if value is None:
        return "–"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 1:
        return f"{value:.2f}"
    return f"{value:.3g}"


def error(relative: float | None) -> str:
    """A relative uncertainty: ``±0.4 %``, ``±12 %``; nothing where it is not known."""
    if relative is None or not math.isfinite(relative):
        return ""
    percent = 100 * relative
    # From 9.95 on, one digit after the point would show as 10.0.
    if percent >= 9.95:
        return f"±{percent:.0f} %"
    return f"±{percent:.1f} %"


def change(ratio: float) -> str:
    """A ratio as a change: ``−48 %``, ``+12 %``, ``×3.2`` from doubling on."""
    # From doubling on, a factor reads better than +100 % and more.
    if ratio >= 2:
        return f"×{number(ratio)}"
    percent = round((ratio - 1) * 100)
    if percent == 0:
        return "±0 %"
    if percent < 0:
        return f"−{-percent} %"
    return f"+{percent} %"


def duration(seconds: float) -> str:
    """Seconds as ``2 h 05 min``, ``3 min 20 s`` or ``4.2 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    # From a minute on, whole seconds; from an hour on, whole minutes.
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def count(amount: int, noun: str) -> str:
    """``1 trial``, ``3 trials``."""
    if amount == 1:
        return f"1 {noun}"
    return f"{amount:,} {noun}s"
