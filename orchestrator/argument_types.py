"""The types of command-line arguments: sizes, durations, shares, counts and runs, from their text.

Each raises ``argparse.ArgumentTypeError`` with a sentence, which argparse prints.
"""

import argparse
import contextlib
import math
from collections.abc import Callable
from typing import TypeVar

from orchestrator.storage.location import location
from orchestrator.units import duration_seconds, size_bytes

_Value = TypeVar("_Value")


def _parsed_by(read: Callable[[str], _Value]) -> Callable[[str], _Value]:
    def parse(text: str) -> _Value:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


run_location = _parsed_by(location)
duration = _parsed_by(duration_seconds)
"""A time such as 15m, in seconds."""
size = _parsed_by(size_bytes)
"""A size such as 24GiB, in bytes."""


def sizes(text: str) -> list[int]:
    """Parse an argument such as 24GiB,40GiB."""
    return [size(part) for part in text.split(",")]


def count(text: str) -> int:
    """Parse an argument that is an integer of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer from 1, not {text}")
    return int(text)


def above_zero(text: str) -> float:
    """Parse an argument that is a number above zero."""
    with contextlib.suppress(ValueError):
        value = float(text)
        if 0 < value < math.inf:  # also refuses nan
            return value
    raise argparse.ArgumentTypeError(f"must be a number above zero, not {text}")


def share(text: str) -> float:
    """Parse an argument such as 2% or 0.02. Returns a share below 1."""
    with contextlib.suppress(ValueError):
        value = float(text.removesuffix("%"))
        if text.endswith("%"):
            value /= 100  # percent
        if 0 <= value < 1:
            return value
    raise argparse.ArgumentTypeError(f"must be a share below 1 such as 2% or 0.02, not {text}")


def margin(text: str) -> float:
    """Parse a margin. Returns a share below 1 for 5%, and bytes for 4GiB."""
    with contextlib.suppress(ValueError):
        # Try a size first. No share, such as 5% or 0.05, is a valid size.
        return float(size_bytes(text))
    try:
        return share(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"must be a share or a size such as 5% or 4GiB, not {text}"
        ) from None
