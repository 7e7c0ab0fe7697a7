"""The frontier search replayed on recorded grids: what it finds and what it costs, as bounds.

``python -m tests.benchmarks.replay`` prints the exact figures, for a hundred seeds. A new recorded
table joins by a row in MAX_COST.
"""

from dataclasses import replace
from functools import cache

import pytest

from tests.benchmarks.best.grids import Grid as RecordedGrid
from tests.benchmarks.best.grids import law_grid, recorded_grid
from tests.benchmarks.grids import DATA
from tests.benchmarks.replay import Replay, frontier_search, replay, with_random
from tests.benchmarks.simulated_grids import OPTIMIZERS, TECHNIQUES, simulated

MAX_COST = {
    ("bert_large_h200.parquet", True): 0.22,
    ("bert_large_h200_fp32_tf32.parquet", False): 0.55,
}
"""Table, and whether its memory is predicted -> share of its slot seconds that the search may take.
"""


def grid_of(name: str) -> RecordedGrid:
    """A recorded grid, with its predicted memory and the priors of other models."""
    return recorded_grid(DATA / name, ())


@cache
def replayed(name: str, has_predictions: bool) -> Replay:
    """The frontier search on a recorded table, with its predicted memory or without."""
    grid = grid_of(name)
    return replay(frontier_search(grid, has_predictions=has_predictions), grid.table)


@pytest.mark.parametrize(("name", "has_predictions"), MAX_COST)
def test_replay_of_a_recorded_grid_finds_the_front_cheaply(name, has_predictions):
    run = replayed(name, has_predictions)
    assert run.height >= 0.99
    assert run.cost <= MAX_COST[name, has_predictions]


def test_replay_of_a_quiet_grid_finds_nearly_all_points():
    assert replayed("bert_large_h200.parquet", True).recall >= 0.9


def test_replay_with_noise_finds_the_true_front():
    grid = grid_of("bert_large_h200_fp32_tf32.parquet")
    assert with_random(grid, 0.03, 0)["frontier"].true_recall >= 0.9


def test_replay_in_equal_time_finds_over_twice_as_much_as_random_order():
    some = dict(list(TECHNIQUES.items())[:4]), dict(list(OPTIMIZERS.items())[:2])
    table = simulated(techniques=some[0], optimizers=some[1])
    runs = with_random(replace(law_grid(()), table=table), 0.0, 0)
    assert runs["frontier"].recall >= 0.9
    assert 2 * runs["random"].recall < runs["frontier"].recall
