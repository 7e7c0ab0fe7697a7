"""The Pareto front: exactly the items that nothing beats."""

import math
import operator
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.pareto import fronts_by, pareto_front
from tests.support.configurations import make_configuration

Figures = tuple[float, ...]
CONFIGURATIONS = st.lists(
    st.builds(
        make_configuration,
        st.integers(1, 12),
        st.integers(1, 12).map(float),
        recipe=st.sampled_from([{}, {"optimizer": "sgd"}]),
    )
)


TRIPLES = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6) | st.just(-math.inf)),
    max_size=20,
)


def unbeaten(items: Sequence[Figures]) -> list[Figures]:
    """Those of which no other is no worse in each figure and better in one; more is better."""
    found = []
    for item in items:
        rivals = [rival for rival in items if rival != item]
        if not any(all(map(operator.ge, rival, item)) for rival in rivals):
            found.append(item)
    return sorted(found)


def figures(configuration: Configuration) -> Figures:
    return -configuration.memory_bytes, configuration.samples_per_second


@given(CONFIGURATIONS)
def test_fronts_by_are_what_nothing_in_the_group_beats(items):
    fronts = fronts_by(items, lambda item: item.training_recipe)
    assert fronts.keys() == {item.training_recipe for item in items}
    for recipe, front in fronts.items():
        members = [figures(item) for item in items if item.training_recipe == recipe]
        assert sorted(map(figures, front)) == unbeaten(members)
        assert [own.memory_bytes for own in front] == sorted(own.memory_bytes for own in front)


@given(TRIPLES)
def test_pareto_front_of_three_objectives_leaves_out_missing_figures(items):
    front = pareto_front(items, [lambda t: t[0], lambda t: t[1], lambda t: t[2]])
    assert sorted(front) == unbeaten([item for item in items if -math.inf not in item])
