"""Which values of an axis do something similar, by their names: ``budget_0.2`` and ``budget_0.5``.

A name is read as words and at most one number. Values with equal words are points of one curve.
Values whose first words are equal are variants of one idea.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
VARIANT_CORRELATION = 0.9
"""How much two variants of one idea have in common. In recorded runs, variants of TorchInductor
differ by 2 % where all of them slow the model down by 46 %, and variants of checkpointing by 4 %
where they cost 30 %."""
_LARGE_NUMBER_SCALE = 4.0
"""Octaves over which the effect of a number above 1, such as a rank, is expected to change."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueName:
    """A value's name, taken apart."""

    words: str
    """The name with its number left out."""
    first_word: str
    number: float | None
    """None without a number, or with several."""

    @property
    def is_share(self) -> bool:
        """Whether the number is a share of what the axis's default has."""
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
    """Prior correlation of what two values of an axis do, 0 to 1."""
    if first == second:
        return 1.0
    one, other = parsed(first), parsed(second)
    if one.words == other.words and one.number is not None and other.number is not None:
        return math.exp(-_distance(one, other))
    if one.first_word == other.first_word:
        return VARIANT_CORRELATION
    return 0.0


def _distance(one: ValueName, other: ValueName) -> float:
    """How far two numbers of one curve are apart: shares by difference, others by octaves."""
    assert one.number is not None
    assert other.number is not None
    if one.is_share and other.is_share:
        return abs(one.number - other.number)
    if min(one.number, other.number) <= 0:
        return 1.0
    return abs(math.log2(one.number / other.number)) / _LARGE_NUMBER_SCALE
