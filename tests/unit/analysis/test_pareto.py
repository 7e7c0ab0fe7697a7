"""The Pareto front: exactly the items that nothing beats."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.pareto import fronts_by, memory_speed_front, pareto_front
from tests.support.configurations import make_configuration

CONFIGURATIONS = st.lists(
    st.builds(
        make_configuration,
        st.integers(1, 12),
        st.integers(1, 12).map(float),
        recipe=st.sampled_from([{}, {"optimizer": "sgd"}]),
    )
)


def beats(rival: Configuration, other: Configuration) -> bool:
    """Whether ``rival`` is no worse in memory and in speed, and better in one of them."""
    no_worse = (
        rival.memory_bytes <= other.memory_bytes
        and rival.samples_per_second >= other.samples_per_second
    )
    better = (
        rival.memory_bytes < other.memory_bytes
        or rival.samples_per_second > other.samples_per_second
    )
    return no_worse and better


@given(CONFIGURATIONS)
def test_memory_speed_front_is_exactly_what_nothing_beats(items: list[Configuration]) -> None:
    front = memory_speed_front(items)
    unbeaten = [item for item in items if not any(beats(rival, item) for rival in items)]
    assert sorted(map(id, front)) == sorted(map(id, unbeaten))
    assert [item.memory_bytes for item in front] == sorted(item.memory_bytes for item in front)


@given(CONFIGURATIONS)
def test_fronts_by_never_mix_groups(items: list[Configuration]) -> None:
    fronts = fronts_by(items, lambda item: item.training_recipe)
    for recipe, front in fronts.items():
        members = [item for item in items if item.training_recipe == recipe]
        assert front == memory_speed_front(members)


TRIPLES = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6) | st.just(-math.inf)),
    max_size=20,
)


@given(TRIPLES)
def test_pareto_front_of_three_objectives_leaves_out_missing_figures(
    items: list[tuple[float, ...]],
) -> None:
    front = pareto_front(items, [lambda t: t[0], lambda t: t[1], lambda t: t[2]])
    complete = [item for item in items if -math.inf not in item]
    unbeaten = []
    for item in complete:
        rivals = [rival for rival in complete if rival != item and is_no_worse(rival, item)]
        if not rivals:
            unbeaten.append(item)
    assert sorted(front) == sorted(unbeaten)


def is_no_worse(rival: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Whether each figure of ``rival`` is at least that of ``other``."""
    return all(left >= right for left, right in zip(rival, other, strict=True))
