"""Units: sizes, durations and percentages, parsed from text and formatted for people."""

from __future__ import annotations

import math
import re

KIB = 2**10
MIB = 2**20
GIB = 2**30
HOUR_SECONDS = 3600

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
"""Prefix of a unit -> its power of 1000, or of 1024 if an "i" follows."""
SIZE_PATTERN = r"(\d+(?:\.\d+)?) ?([KMGTkmgt]?)([iI]?)[bB]?"
DURATION_PATTERN = (
    r"(?:(\d+(?:\.\d+)?) ?[dD])? ?(?:(\d+(?:\.\d+)?) ?[hH])? ?"
    r"(?:(\d+(?:\.\d+)?) ?[mM](?:in)?)? ?(?:(\d+(?:\.\d+)?) ?(?:[sS](?:ec)?)?)?"
)
"""Days, hours, minutes and seconds; a number alone is seconds."""
_LEAST_WITHOUT_UNIT = 10**6
"""A number below this is never a memory size in bytes: its unit was forgotten."""
_MOST_DIGITS = 24
"""More digits than any size has; a thousand of them would not fit a double."""
_LONGEST_SECONDS = 366 * 24 * HOUR_SECONDS
"""A year: no clock of the operating system takes much more."""


def size_bytes(value: object) -> int:
    """Bytes of ``16GiB`` or ``24GB``.

    With an ``i`` a unit counts in 1024s, without it in 1000s; capitals, the ``B`` and a space make
    no difference. A number without a unit is bytes. Raises ValueError.
    """
    size = _number_of_bytes(value)
    # A size is written to tables, whose integers have 64 bits.
    if size is None or not 0 < size < 2**63:
        raise ValueError(
            "must be a size above zero such as 16GiB (1024³ bytes), 24GB or 24G (1000³ bytes), or "
            "a number of bytes"
        )
    if size < _LEAST_WITHOUT_UNIT and not _has_unit(value):
        raise ValueError(f"needs a unit: {value}GiB (1024³ bytes) or {value}GB (1000³ bytes)")
    return size


def _number_of_bytes(value: object) -> int | None:
    """None for anything that is no size."""
    if isinstance(value, str):
        match = re.fullmatch(SIZE_PATTERN, value.strip())
        # "16i" has a mark of a unit that is not there.
        if match is None or (match[3] and not match[2]) or len(match[1]) > _MOST_DIGITS:
            return None
        base = 1000
        if match[3]:
            base = 1024
        return int(float(match[1]) * base ** _POWERS[match[2].lower()])
    # To Python, True is the integer 1.
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # YAML reads 24e9 as a fraction, although it is whole.
    if value != value or value in (math.inf, -math.inf) or value != int(value):
        return None
    return int(value)


def _has_unit(value: object) -> bool:
    return isinstance(value, str) and re.search("[A-Za-z]", value) is not None


def duration_seconds(value: object) -> float:
    """Seconds of ``300s``, ``5m``, ``1h30m``, ``2d``; a number without a unit is seconds.

    Raises ValueError.
    """
    if isinstance(value, str):
        match = re.fullmatch(DURATION_PATTERN, value.strip())
        if match:
            days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
            value = (days * 24 + hours) * HOUR_SECONDS + minutes * 60 + seconds
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ValueError("must be a time above zero such as 300s, 5m, 1h30m or a number of seconds")
    if value > _LONGEST_SECONDS:
        raise ValueError("must be a time of at most a year, in seconds or as in 1h30m")
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
    """A relative uncertainty: ``±0.4 %``, ``±12 %``; nothing if it is not known."""
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
