"""Units: sizes, durations and percentages, parsed from text and formatted for people."""

import math
import re
from collections.abc import Sequence
from decimal import Decimal

KIB = 2**10
MIB = 1024 * KIB
GIB = 1024 * MIB
HOUR_SECONDS = 3600

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
"""Prefix of a unit -> the power of 1000 that it stands for, or of 1024 if an "i" follows."""
SIZE_PATTERN = r"(\d+(?:\.\d+)?) ?([KMGTkmgt]?)([iI]?)[bB]?"
DURATION_PATTERN = (
    r"(?:(\d+(?:\.\d+)?) ?[dD])? ?(?:(\d+(?:\.\d+)?) ?[hH])? ?"
    r"(?:(\d+(?:\.\d+)?) ?[mM](?:in)?)? ?(?:(\d+(?:\.\d+)?) ?(?:[sS](?:ec)?)?)?"
)
"""Days, hours, minutes and seconds; a number alone is seconds."""
_LEAST_WITHOUT_UNIT = 10**6
"""A bare number below this is not a plausible memory size in bytes. Its unit was forgotten."""
_LONGEST_SECONDS = 366 * 24 * HOUR_SECONDS
"""A year. The operating system's timers do not accept much longer times."""


def size_bytes(value: object) -> int:
    """Bytes of ``16GiB`` or ``24GB``. A unit with an ``i`` counts in powers of 1024, one without in
    powers of 1000. Capitals, the ``B`` and a space make no difference. A number without a unit is
    bytes. Raises ValueError if ``value`` is not a size, or is a small number without a unit."""
    size = _number_of_bytes(value)
    # Sizes are written to tables, whose signed integers have 64 bits.
    if size is None or not 0 < size < 2**63:
        raise ValueError(
            "must be a size above zero such as 16GiB (1024³ bytes), 24GB or 24G (1000³ bytes), or "
            "a number of bytes"
        )
    has_unit = isinstance(value, str) and re.search("[A-Za-z]", value)
    if size < _LEAST_WITHOUT_UNIT and not has_unit:
        raise ValueError(f"needs a unit: {value}GiB (1024³ bytes) or {value}GB (1000³ bytes)")
    return size


def _number_of_bytes(value: object) -> int | None:
    if isinstance(value, str):
        return _bytes_of_text(value)
    # To Python, True is the integer 1.
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # YAML reads 24e9 as a float, so whole floats are accepted. NaN and infinity are refused.
    if value != value or value in (math.inf, -math.inf) or value != int(value):
        return None
    return int(value)


def _bytes_of_text(text: str) -> int | None:
    match = re.fullmatch(SIZE_PATTERN, text.strip())
    # Refuse "16i": an "i" needs a prefix such as G before it.
    if match is None or (match[3] and not match[2]):
        return None
    base = 1024 if match[3] else 1000
    # A float has no room for a number of a thousand digits.
    return int(Decimal(match[1]) * base ** _POWERS[match[2].lower()])


def duration_seconds(value: object) -> float:
    """Seconds of ``300s``, ``5m``, ``1h30m``, ``2d``. A number without a unit is seconds. Raises
    ValueError if ``value`` is not a time above zero, or is longer than a year."""
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
    """Bytes with a unit that suits them: ``23.5 GiB``, ``312 MiB``. None becomes an en dash."""
    if size is None:
        return "–"
    # A difference of two sizes can be negative.
    if size < 0:
        return f"−{memory(-size)}"
    # Use the largest unit that gives a value of at least 1. Stop at GiB, because people compare
    # the memory of GPUs in GiB.
    value = float(size)
    unit = "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < KIB or unit == "GiB":
            break
        value /= KIB
    # Show three significant digits, which is enough to tell two configurations apart.
    if value >= 100 or value == int(value):
        return f"{value:.0f} {unit}"
    if value >= 10:
        return f"{value:.1f} {unit}"
    return f"{value:.2f} {unit}"


def listed(names: Sequence[object], most: int) -> str:
    """``a, b, c and 4 more``: at most so many names, and the number of the others."""
    text = ", ".join(map(str, names[:most]))
    if len(names) > most:
        text += f" and {len(names) - most} more"
    return text


def number(value: float | None) -> str:
    """A number with about three significant digits: ``345``, ``34.5``, ``0.0345``. All digits
    before the decimal point are shown. None becomes an en dash."""
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
    """A relative uncertainty: ``±0.4 %``, ``±12 %``. Empty if it is not known."""
    if relative is None or not math.isfinite(relative):
        return ""
    percent = 100 * relative
    # From 9.95 on, one digit after the point would show as 10.0.
    if percent >= 9.95:
        return f"±{percent:.0f} %"
    return f"±{percent:.1f} %"


def change(ratio: float) -> str:
    """A ratio as a change: ``−48 %``, ``+12 %``, or ``×3.2`` if it is 2 or more."""
    # A factor reads better than +100 % and more.
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
    """A number of things in words: ``1 trial``, ``3 trials``."""
    if amount == 1:
        return f"1 {noun}"
    return f"{amount:,} {noun}s"
