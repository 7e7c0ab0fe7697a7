"""The page's decisions: at every budget and batch what ``recommend`` answers."""

import random
from typing import Any

import pytest

from orchestrator.analysis.dataset import EnvironmentResults
from orchestrator.analysis.objectives import OBJECTIVES
from orchestrator.api import Run, load
from orchestrator.reporting.html.decisions import decision_at, decisions, key_of
from orchestrator.units import GIB
from tests.support.recorded_runs import RECORDED

RUNS = sorted(path.parent.name for path in RECORDED.glob("*/trials.parquet"))


def page_decisions(run: Run, results: EnvironmentResults, **limit: int) -> dict[str, Any]:
    recipes = list(results.fronts)
    index_of = {own.trial_ids[0]: index for index, own in enumerate(results.configurations)}
    return decisions(run.dataset, results, recipes, index_of, **limit)


@pytest.mark.parametrize("name", RUNS)
def test_decisions_are_the_answers_of_recommend(name):
    run = load(RECORDED / name)
    results = run.results
    table = page_decisions(run, results)
    recipes = list(results.fronts)
    draw = random.Random(name)
    sizes = [own.memory_bytes for own in results.configurations]
    for _ in range(10):
        objective = draw.choice(list(OBJECTIVES))
        batch = draw.choice([None, 1, 4, 16, 64, 256, 512])
        recipe = draw.choice([results.recipe, None])
        budget = draw.choice([None, draw.choice(sizes), draw.choice(sizes) - 1, 24 * GIB])
        key = key_of((objective, batch, recipe), recipes)
        if key not in table["steps"]:  # nothing measured in it, or a batch that is not offered
            continue
        shown = decision_at(table, key, budget)
        best = run.recommend(
            memory_bytes=budget,
            effective_batch=batch,
            all_recipes=recipe is None,
            objective=objective,
            price_per_hour=2.0,
        ).best
        if best is None:
            assert shown is None
            continue
        assert shown["label"] == run.dataset.pick_label(best.configuration)
        assert shown["memory"] == best.configuration.memory_bytes


def test_decisions_leave_out_queries_beyond_their_room():
    run = load(RECORDED / "2026-11-20-bert_large-7xh200-part")
    rows = len(run.results.configurations)
    assert len(page_decisions(run, run.results, limit=3 * rows)["steps"]) == 3
    assert len(page_decisions(run, run.results, limit=1)["steps"]) == 1
