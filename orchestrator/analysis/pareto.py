"""The Pareto front: the items that no other item beats on every objective."""

import math
import operator
from collections.abc import Callable, Iterable, Sequence

from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.grouping import K, T, grouped

Objective = Callable[[T], float]
"""Returns a figure of an item. More is better; minus infinity if the item has no figure."""
Scores = tuple[float, ...]
"""The figures of an item, one for each objective."""


def pareto_front(items: Iterable[T], objectives: Sequence[Objective[T]]) -> tuple[T, ...]:
    """The items that no other beats, the best on the first objective first. One item beats another
    if it is no worse on any objective and better on one. Items without a figure are left out."""
    scored = [(tuple(objective(item) for objective in objectives), item) for item in items]
    # In this order an item can beat only those that come later.
    scored = [each for each in scored if -math.inf not in each[0]]
    scored.sort(key=operator.itemgetter(0), reverse=True)
    front: list[tuple[Scores, T]] = []
    for scores, item in scored:
        # With two objectives, the last item of the front is the best so far on the second.
        rivals = front[-1:] if len(objectives) <= 2 else front
        # A rival is better if it is no worse on any objective, unless both are equal.
        if not any(own != scores and all(map(operator.ge, own, scores)) for own, _ in rivals):
            front.append((scores, item))
    return tuple(item for _, item in front)


def little_memory(configuration: Configuration) -> float:
    """The first objective: the memory with its sign changed, because less is better."""
    return -float(configuration.memory_bytes)


def speed(configuration: Configuration) -> float:
    """The second objective: samples per second."""
    return configuration.samples_per_second


def fronts_by(
    configurations: Iterable[Configuration], key: Callable[[Configuration], K]
) -> dict[K, tuple[Configuration, ...]]:
    """Key -> the front of memory and speed of the configurations with this key, by rising
    memory."""
    groups = grouped(configurations, key)
    return {own: pareto_front(members, (little_memory, speed)) for own, members in groups.items()}
