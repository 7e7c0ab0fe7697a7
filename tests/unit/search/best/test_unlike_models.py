"""The search on simulated models that are unlike the recorded ones."""

import pytest

from orchestrator.search.best.search import BestSearch
from orchestrator.units import GIB
from tests.benchmarks.best.grids import sketched_grid
from tests.benchmarks.best.scores import best_of, regret_of, score
from tests.benchmarks.best.sketches import SKETCHES
from tests.benchmarks.grids import with_noise

BUDGETS = tuple(gib * GIB for gib in (16, 24, 40, 80))
_VISION, _EXPERTS, _LORA = SKETCHES


@pytest.mark.parametrize("sketch", SKETCHES, ids=["vision", "experts", "lora"])
def test_best_search_of_an_unlike_model_answers_with_few_trials(sketch):
    grid = sketched_grid(sketch, 0, BUDGETS)
    result = score(best_of(grid), grid, with_noise(grid.table, 0.02, 0))
    assert max(result.regrets) <= 0.03
    assert result.share < 0.3
    # No claim may be far from the truth, although the model of the search does not hold here.
    for claim in result.claims:
        assert claim.true <= claim.said + 0.03


def test_best_search_that_is_cut_short_says_what_may_be_left():
    grid = sketched_grid(_VISION, 0, BUDGETS)
    result = score(best_of(grid, slot_seconds=0.04 * grid.seconds), grid, grid.table)
    assert result.share <= 0.05
    for claim in result.claims:
        assert claim.said > 0.05 or claim.true <= claim.said


def test_best_search_never_prefers_a_pick_that_measured_much_slower():
    grid = sketched_grid(_VISION, 1, BUDGETS)
    noisy = with_noise(grid.table, 0.02, 1)
    search = best_of(grid)([record.spec for record in noisy.values()])
    assert isinstance(search, BestSearch)
    best = dict.fromkeys(BUDGETS, 0.0)
    while (trial := search.ask()) is not None:
        record = noisy[trial.trial_id]
        search.tell(record)
        for result in search.results():
            budget = result.budget_bytes or 0
            if record.measurements["device_peak_bytes"] <= budget:
                best[budget] = max(best[budget], record.measurements["samples_per_second"])
            assert result.pick.samples_per_second > 0.9 * best[budget]


def test_regret_of_no_pick_is_everything_if_anything_fits():
    grid = sketched_grid(_EXPERTS, 0, BUDGETS)
    assert regret_of(grid, None, BUDGETS[0]) == 1
    assert regret_of(grid, None, GIB) is None
