"""Finds values of an axis with similar effects by their names: ``budget_0.2`` and ``budget_0.5``.

A name consists of words and at most one number. Values that differ in the number only are points of
one curve. Values with the same first word are variants of one technique.
"""

import math
import re
from collections.abc import Iterable
from functools import cache
from typing import TypeGuard

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_VARIANT_CORRELATION = 0.95
"""Correlation of the effects of two variants of one technique. In recorded runs, all variants of
TorchInductor slow a model down by 46 %, and differ from each other by 2 %. Variants of
checkpointing cost 30 %, and differ by 4 %."""
_SHARE_SCALE = 0.7
"""Difference of two shares of activations over which the effect is expected to change: it is
smooth."""
_LARGE_NUMBER_SCALE = 4.0
"""Octaves over which the effect of a number above 1, such as a rank, is expected to change."""


@cache
def parsed(value: str) -> tuple[str, float | None]:
    """A name with "#" in place of its number, and the number; None without one, or with several."""
    numbers = _NUMBER.findall(value)
    if len(numbers) != 1:
        return value, None
    return _NUMBER.sub("#", value), float(numbers[0])


def is_share(number: float | None) -> TypeGuard[float]:
    """Whether a number is between 0 and 1, such as a share of activations to keep."""
    return number is not None and 0 < number < 1


def correlation(first: str, second: str) -> float:
    """Prior correlation of the effects of two values of an axis, from 0 to 1."""
    if first == second:
        return 1.0
    (words, number), (other_words, other_number) = parsed(first), parsed(second)
    if words == other_words and number is not None and other_number is not None:
        return math.exp(-_distance(number, other_number))
    # The first word ends before "_", the number or the parameters.
    if re.split("[_#(]", words)[0] == re.split("[_#(]", other_words)[0]:
        return _VARIANT_CORRELATION
    return 0.0


def similar_to(choice: tuple[str, object], choices: Iterable[tuple[str, object]]) -> list[int]:
    """The positions of the other values of a choice's axis with similar effects."""
    axis, value = choice[0], str(choice[1])
    others = [str(other) if other_axis == axis else value for other_axis, other in choices]
    return [
        position
        for position, other in enumerate(others)
        if other != value and correlation(value, other) > 0
    ]


def _distance(one: float, other: float) -> float:
    """Distance of two numbers of one curve: the difference of two shares, else in octaves."""
    if is_share(one) and is_share(other):
        return ((one - other) / _SHARE_SCALE) ** 2
    if min(one, other) <= 0:
        return 1.0
    return abs(math.log2(one / other)) / _LARGE_NUMBER_SCALE
