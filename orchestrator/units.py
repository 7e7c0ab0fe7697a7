"""Units: sizes, durations and percentages, parsed from text and formatted for people."""

from __future__ import annotations

import math
import re

KIB = 1024


def memory(size: float | None) -> str:
    """Bytes in the unit that reads best: ``23.5 GiB``, ``312 MiB``; an en dash for None."""
    if size is None:
        return "–"
    if size < 0:
        return f"−{memory(-size)}"
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < KIB or unit == "GiB":
            break
        value /= KIB
    digits = 0 if value >= 100 or value == int(value) else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}"


def number(value: float | None) -> str:
    """Three significant digits without an exponent: ``345``, ``34.5``, ``0.0345``; an en dash for None."""
    if value is None:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return (
        f"{value:.1f}"
        if abs(value) >= 10
        else f"{value:.2f}"
        if abs(value) >= 1
        else f"{value:.3g}"
    )


def error(relative: float | None) -> str:
    """A relative uncertainty: ``±0.4 %``, ``±12 %``; nothing where it is not known."""
    if relative is None or not math.isfinite(relative):
        return ""
    percent = 100 * relative
    return f"±{percent:.0f} %" if percent >= 9.95 else f"±{percent:.1f} %"


def change(ratio: float) -> str:
    """A ratio as a change: ``−48 %``, ``+12 %``, ``×3.2`` from doubling on."""
    if ratio >= 2:
        return f"×{number(ratio)}"
    percent = round((ratio - 1) * 100)
    return "±0 %" if percent == 0 else f"{'+' if percent > 0 else '−'}{abs(percent)} %"


def duration(seconds: float) -> str:
    """Seconds as ``2 h 05 min``, ``3 min 20 s`` or ``4.2 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"{minutes} min {rest:02d} s"
        if minutes < 60
        else f"{minutes // 60} h {minutes % 60:02d} min"
    )


def count(amount: int, noun: str) -> str:
    """``1 trial``, ``3 trials``."""
    return f"{amount:,} {noun}" if amount == 1 else f"{amount:,} {noun}s"


_SIZES = {"B": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("KMGT", 1)
    for suffix, base in (("iB", 1024), ("B", 1000))
}
SIZE = r"(\d+(?:\.\d+)?) ?([KMGT]i?B|B)"
DURATION = r"(?:(\d+(?:\.\d+)?)h)? ?(?:(\d+(?:\.\d+)?)m)? ?(?:(\d+(?:\.\d+)?)s)?"


def size_bytes(value: object) -> int:
    """Bytes of ``16GiB``, ``24GB`` or a whole number. Raises ValueError."""
    found = re.fullmatch(SIZE, value.strip()) if isinstance(value, str) else None
    if found:
        value = int(float(found[1]) * _SIZES[found[2]])
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError("must be a size above zero such as 16GiB, 24GB or a number of bytes")
    return value


def duration_seconds(value: object) -> float:
    """Seconds of ``300s``, ``5m``, ``1h30m`` or a number. Raises ValueError."""
    found = re.fullmatch(DURATION, value.strip()) if isinstance(value, str) else None
    if found:
        value = sum(
            float(part or 0) * unit
            for part, unit in zip(found.groups(), (3600, 60, 1), strict=True)
        )
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 0 < value < float("inf")
    ):
        raise ValueError("must be a time above zero such as 300s, 5m, 1h30m or a number of seconds")
    return float(value)
