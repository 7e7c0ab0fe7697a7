"""Finds values of an axis with similar effects by their names: ``budget_0.2`` and ``budget_0.5``.

A name consists of words and at most one number. Values that differ in the number only are points of
one curve. Values with the same first word are variants of one technique.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
VARIANT_CORRELATION = 0.95
"""Correlation of the effects of two variants of one technique. In recorded runs, all variants of
TorchInductor slow a model down by 46 %, and differ from each other by 2 %. Variants of
checkpointing cost 30 %, and differ by 4 %."""
_SHARE_SCALE = 0.7
"""Difference of two shares over which the effect is expected to change. In recorded runs, time and
memory are smooth in the share of activations to keep."""
_LARGE_NUMBER_SCALE = 4.0
"""Octaves over which the effect of a number above 1, such as a rank, is expected to change."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueName:
    """The parts of a value's name."""

    words: str
    """The name with "#" in place of its number."""
    first_word: str
    number: float | None
    """None without a number, or with several."""

    @property
    def is_share(self) -> bool:
        """Whether the number is between 0 and 1, such as a share of activations to keep."""
        return self.number is not None and 0 < self.number < 1


@cache
def parsed(value: str) -> ValueName:
    """The parts of a name."""
    numbers = _NUMBER.findall(value)
    words = value
    number = None
    if len(numbers) == 1:
        words = _NUMBER.sub("#", value)
        number = float(numbers[0])
    first = re.split(r"[_#]", words)[0]
    return ValueName(words=words, first_word=first, number=number)


def correlation(first: str, second: str) -> float:
    """Prior correlation of the effects of two values of an axis, from 0 to 1."""
    if first == second:
        return 1.0
    one, other = parsed(first), parsed(second)
    if one.words == other.words and one.number is not None and other.number is not None:
        return math.exp(-_distance(one, other))
    if one.first_word == other.first_word:
        return VARIANT_CORRELATION
    return 0.0


def similar_to(choice: tuple[str, object], choices: Iterable[tuple[str, object]]) -> list[int]:
    """The positions of the other values of a choice's axis with similar effects.

    A choice is an axis and a value.
    """
    axis, value = choice
    positions = []
    for position, (other_axis, other) in enumerate(choices):
        is_other = other_axis == axis and str(other) != str(value)
        if is_other and correlation(str(value), str(other)) > 0:
            positions.append(position)
    return positions


def _distance(one: ValueName, other: ValueName) -> float:
    """Distance of two numbers of one curve: the difference of two shares, else in octaves."""
    assert one.number is not None
    assert other.number is not None
    if one.is_share and other.is_share:
        return ((one.number - other.number) / _SHARE_SCALE) ** 2
    if min(one.number, other.number) <= 0:
        return 1.0
    return abs(math.log2(one.number / other.number)) / _LARGE_NUMBER_SCALE
