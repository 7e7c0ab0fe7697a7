"""Whether a plain value has a place in a column of a declared type."""

import datetime
import math
from collections.abc import Callable, Mapping
from typing import Any

from jobs.record import ArrowType

_LIMITS: Mapping[str, tuple[float, float]] = {
    "samples_per_second": (1e-9, 1e12),
    "samples_per_second_ci95": (0.0, 1e6),
    "peak_allocated_bytes": (0.0, 2.0**60),
    "device_peak_bytes": (0.0, 2.0**60),
}
"""Measurement -> the smallest and the largest figure that arithmetic with it can take."""


def is_possible(name: str, value: Any) -> bool:
    """Whether a measurement can be computed with; zero, None, NaN and infinity can."""
    if name not in _LIMITS or not value or not math.isfinite(value):
        return True
    least, most = _LIMITS[name]
    return bool(least <= value <= most)


def is_of_type(value: Any, declared: ArrowType) -> bool:
    """Whether a column of the type holds the value; None has a place in every column."""
    return value is None or _IS_OF_TYPE[declared](value)


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64


def is_number(value: Any) -> bool:
    """An integer that a double holds exactly, or a double; NaN counts."""
    if isinstance(value, float):
        return True
    # A double's significand has 53 bits (IEEE 754).
    return isinstance(value, int) and value.bit_length() <= 53


def _is_whole(value: Any) -> bool:
    # Trackers written in C deliver whole numbers as doubles.
    if type(value) is float:
        return value.is_integer() and abs(value) < 2**53
    return is_integer(value)


def _is_list(value: Any, of: ArrowType) -> bool:
    return isinstance(value, list) and all(is_of_type(item, of) for item in value)


_IS_OF_TYPE: Mapping[ArrowType, Callable[[Any], bool]] = {
    "int64": _is_whole,
    # To Python a boolean is an integer.
    "float64": lambda value: is_number(value) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    # Microseconds of a record, or the time that Arrow makes of them.
    "timestamp": lambda value: isinstance(value, datetime.datetime) or is_integer(value),
    "list<double>": lambda value: _is_list(value, "float64"),
    "list<string>": lambda value: _is_list(value, "string") and None not in value,
}
"""A column's declared type -> whether a value is of it."""
