"""Optuna as a search: what its study learns. The replays need it as a fair rival."""

from __future__ import annotations

from functools import partial

import pytest

from orchestrator.units import GIB
from tests.benchmarks.grids import Table, make_record, make_spec
from tests.benchmarks.optuna_search import OptunaSearch
from tests.benchmarks.replay import replay
from tests.benchmarks.replay_scores import front
from tests.benchmarks.simulated_grids import simulated


@pytest.mark.parametrize("sampler", ["tpe", "nsga2"])
def test_optuna_search_with_equal_seeds_asks_for_equal_trials(sampler: str) -> None:
    def asked(seed: int) -> tuple[str, ...]:
        make = partial(OptunaSearch, sampler=sampler, seed=seed)  # type: ignore[arg-type]
        return replay(make, simulated(), seconds=300.0).asked

    assert asked(3) == asked(3)
    assert asked(3) != asked(4)


def test_optuna_search_asks_equally_often_for_every_recipe() -> None:
    table = simulated()
    search = OptunaSearch(record.spec for record in table.values())
    recipes = []
    for _ in range(72):
        trial = search.ask()
        assert trial is not None
        recipes.append(trial.training_recipe)
        search.tell(table[trial.trial_id])
    # Four recipes share 72 trials.
    assert {recipes.count(recipe) for recipe in recipes} == {18}


@pytest.mark.parametrize("seed", range(3))
def test_optuna_search_learns_where_the_front_is(seed: int) -> None:
    # The table has 48 configurations, one second each. Six of them are on the front, one for each
    # size. A random order would find three of the six in the first 24 seconds.
    table = _corner()
    points = {record.trial_id for record in front(table)}
    asked = replay(partial(OptunaSearch, seed=seed), table, seconds=24.0).asked
    assert len(points) == 6
    assert len(points & set(asked)) >= 5


def _corner() -> Table:
    """Speed follows from the size alone, so every worker costs memory for nothing."""
    records = []
    for size in range(1, 7):
        for workers in range(8):
            spec = make_spec({"micro_batch": size, "workers": workers})
            records.append(make_record(spec, (size + workers) * GIB, 10.0 * size))
    return {record.trial_id: record for record in records}


def test_optuna_search_tells_out_of_memory_as_a_failure() -> None:
    search = OptunaSearch([make_spec({"micro_batch": size}) for size in (1, 2, 4)])
    while (trial := search.ask()) is not None:
        fits = trial.micro_batch < 4
        search.tell(make_record(trial, GIB if fits else None, 1.0 if fits else None))
    [study] = search.studies
    # A trial without values ran out of memory.
    assert {state for state, values in study.outcomes if values is None} == {"FAIL"}
    assert {values for _, values in study.outcomes if values} == {(GIB, 1.0)}
