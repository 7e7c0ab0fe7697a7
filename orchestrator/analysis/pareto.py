"""The Pareto front: the items that no other item beats on every objective."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from orchestrator.analysis.configuration import Configuration

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

Objective = Callable[[T], float]
"""A figure of an item of which more is better; minus infinity where it has none."""
Scores = tuple[float, ...]
"""An item's figures, one an objective."""


def pareto_front(items: Iterable[T], objectives: Sequence[Objective[T]]) -> tuple[T, ...]:
    """The items that no other beats, the best on the first objective first.

    Equal items stay or go together.

    One item beats another if it is no worse on any objective and better on one. Items without a
    figure are left out.
    """
    scored = _scored(items, objectives)
    # In this order an item can beat only those that come later.
    scored.sort(key=operator.itemgetter(0), reverse=True)
    front: list[tuple[Scores, T]] = []
    for scores, item in scored:
        rivals = front
        if len(objectives) <= 2:
            # On two objectives the last to stay is the best so far on the second, and decides
            # alone.
            rivals = front[-1:]
        if not any(_beats(rival, scores) for rival, _ in rivals):
            front.append((scores, item))
    return tuple(item for _, item in front)


def _scored(items: Iterable[T], objectives: Sequence[Objective[T]]) -> list[tuple[Scores, T]]:
    """The items that have a figure on every objective, with their figures."""
    scored = []
    for item in items:
        scores = tuple(objective(item) for objective in objectives)
        if -math.inf not in scores:
            scored.append((scores, item))
    return scored


def _beats(scores: Scores, others: Scores) -> bool:
    return scores != others and all(map(operator.ge, scores, others))


def little_memory(configuration: Configuration) -> float:
    """The objective of the front's first axis."""
    return -float(configuration.memory_bytes)


def speed(configuration: Configuration) -> float:
    """The objective of the front's second axis."""
    return configuration.samples_per_second


MEMORY_AND_SPEED = (little_memory, speed)
"""The objectives of the front that reports show."""


def memory_speed_front(configurations: Iterable[Configuration]) -> tuple[Configuration, ...]:
    """The front of memory and speed, by rising memory."""
    return pareto_front(configurations, MEMORY_AND_SPEED)


def fronts_by(
    configurations: Iterable[Configuration], key: Callable[[Configuration], K]
) -> dict[K, tuple[Configuration, ...]]:
    """``key`` -> the front of memory and speed of the configurations with that key, in order of
    first appearance.
    """
    groups: dict[K, list[Configuration]] = {}
    for configuration in configurations:
        groups.setdefault(key(configuration), []).append(configuration)
    fronts = {}
    for value, members in groups.items():
        fronts[value] = memory_speed_front(members)
    return fronts
