"""Sizes and durations as people write them, ``16GiB`` and ``5m``, as bytes and seconds."""

from __future__ import annotations

import re

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
        value = sum(float(part or 0) * unit for part, unit in zip(found.groups(), (3600, 60, 1), strict=True))
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ValueError("must be a time above zero such as 300s, 5m, 1h30m or a number of seconds")
    return float(value)
