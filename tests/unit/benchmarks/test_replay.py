"""The frontier search replayed on recorded grids: what it finds and what it costs, as bounds.

``python -m tests.benchmarks.replay`` prints the exact figures, for a hundred seeds. A new recorded
table joins by a row in MAX_COST.
"""

from dataclasses import replace

import pytest

from tests.benchmarks.best.grids import law_grid, recorded_grid
from tests.benchmarks.grids import DATA
from tests.benchmarks.replay import frontier_search, replay, with_random
from tests.benchmarks.simulated_grids import OPTIMIZERS, TECHNIQUES, simulated
from tests.benchmarks.technique_priors import RESULTS

VIT = RESULTS / "2026-11-24-grids-h200/vit"
MAX_COST = {
    (VIT, True): 0.3,
    (DATA / "bert_large_h200_fp32_tf32.parquet", False): 0.55,
}
"""Table, and whether its memory is predicted -> share of its slot seconds that the search may take.
"""


@pytest.mark.parametrize(("path", "has_predictions"), MAX_COST)
def test_replay_of_a_recorded_grid_finds_the_front_cheaply(path, has_predictions):
    grid = recorded_grid(path, ())
    run = replay(frontier_search(grid, has_predictions=has_predictions), grid.table)
    assert run.height >= 0.99
    assert run.recall >= 0.9
    assert run.cost <= MAX_COST[path, has_predictions]


def test_replay_with_noise_finds_the_true_front():
    assert with_random(recorded_grid(VIT, ()), 0.03, 0)["frontier"].true_recall >= 0.9


def test_replay_in_equal_time_finds_over_twice_as_much_as_random_order():
    some = dict(list(TECHNIQUES.items())[:4]), dict(list(OPTIMIZERS.items())[:2])
    table = simulated(techniques=some[0], optimizers=some[1])
    runs = with_random(replace(law_grid(()), table=table), 0.0, 0)
    assert runs["frontier"].recall >= 0.9
    assert 2 * runs["random"].recall < runs["frontier"].recall
