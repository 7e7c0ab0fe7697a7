"""The frontier search replayed on recorded grids: what it finds and what it costs, as bounds.

``python -m tests.benchmarks.replay`` prints the exact figures, for a hundred seeds. A new recorded
table joins by a row in MAX_COST.
"""

from functools import cache

import pytest

from orchestrator.search.frontier.search import FrontierSearch
from tests.benchmarks.grids import DATA, Table, is_gpus_own, predicted, recorded, with_noise
from tests.benchmarks.replay import MakeSearch, Replay, replay, with_predicted_memory, with_random
from tests.benchmarks.replay_scores import recall
from tests.benchmarks.simulated_grids import simulated

MAX_COST = {
    "bert_large_h200.parquet": (0.20, 0.36),
    "bert_large_h200_fp32_tf32.parquet": (0.37, 0.52),
    "bert_large_h200_one_host.parquet": (0.24, 0.37),
}
"""Table -> share of its slot seconds that the search may take, with predicted memory and
without."""
RECORDED = sorted(path.name for path in DATA.glob("bert_large_h200*.parquet"))


def with_memory_of(table: Table) -> MakeSearch:
    """The frontier search with the predicted memory of a table."""
    return with_predicted_memory(predicted(table))


@cache
def replayed(name: str, *, has_predictions: bool = True) -> Replay:
    """The frontier search on a recorded table, with its predicted memory or without."""
    table = recorded(DATA / name)
    make: MakeSearch = FrontierSearch
    if has_predictions:
        make = with_memory_of(table)
    return replay(make, table)


def recall_of_gpus_own(table: Table, run: Replay) -> float:
    """Recall of the points whose speed does not depend on a host's pace."""
    return recall(table, run.asked, among=lambda point: is_gpus_own(point.measurements))


@pytest.mark.parametrize("name", RECORDED)
def test_replay_of_a_recorded_grid_finds_the_front_cheaply(name):
    table = recorded(DATA / name)
    for has_predictions, max_cost in zip((True, False), MAX_COST[name], strict=True):
        run = replayed(name, has_predictions=has_predictions)
        # On a grid of a restless host, some points are only the luckiest of equals.
        assert recall_of_gpus_own(table, run) >= 0.99
        assert run.height >= 0.98
        assert run.cost <= max_cost


@pytest.mark.parametrize("name", ["bert_large_h200.parquet", "bert_large_h200_fp32_tf32.parquet"])
def test_replay_of_a_quiet_grid_finds_the_whole_front(name):
    assert replayed(name).recall >= 0.99


def test_replay_with_equal_seeds_asks_for_equal_trials():
    again = replay(FrontierSearch, recorded(DATA / RECORDED[0]))
    assert replayed(RECORDED[0], has_predictions=False).asked == again.asked


@pytest.mark.parametrize("noise", [0.01, 0.03, 0.10])
def test_replay_with_noise_finds_the_true_front(noise):
    table = recorded()
    noisy = with_noise(table, noise, seed=0)
    assert replay(with_memory_of(table), noisy, truth=table).true_recall >= 0.95


@pytest.mark.parametrize("seed", [0, 5])
def test_replay_with_a_restless_host_finds_the_true_front(seed):
    run = replay(FrontierSearch, simulated(host_variation=2.5, seed=seed), truth=simulated())
    assert run.true_recall >= 0.99


def test_replay_in_equal_time_finds_over_twice_as_much_as_random_order():
    runs = with_random(simulated(), 0.0, 0, {})
    assert runs["frontier"].recall >= 0.99
    assert 2 * runs["random"].recall < runs["frontier"].recall
