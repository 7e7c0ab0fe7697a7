"""The fastest configuration within each memory budget."""

from dataclasses import replace

import pytest

from jobs.flags import Flag, FlagKind
from jobs.record import Outcome
from jobs.spec import TrainingRecipe
from orchestrator.analysis.budget_picks import (
    BudgetPick,
    best_in_budgets,
    contenders,
    default_budgets,
)
from orchestrator.analysis.follow_up_results import CapCheck
from orchestrator.analysis.recommendation import Rankings
from orchestrator.units import GIB, MIB
from tests.support.configurations import make_configuration as make

SGD = {"optimizer": "sgd"}


def speeds(pick: BudgetPick) -> tuple[float | None, float | None]:
    """Of the best, and of the faster one with another recipe."""
    best = pick.best.samples_per_second if pick.best else None
    other = pick.other.samples_per_second if pick.other else None
    return best, other


def check(trial_id: str, budget: int, outcome: Outcome, memory: int | None) -> CapCheck:
    return CapCheck(
        trial_id="check",
        follows_trial=trial_id,
        budget_bytes=budget,
        outcome=outcome,
        memory_bytes=memory,
        samples_per_second=1.0,
    )


def test_best_in_budgets_names_another_recipe_only_if_it_is_faster():
    configurations = [make(2 * GIB, 10.0), make(6 * GIB, 30.0), make(1 * GIB, 20.0, recipe=SGD)]
    picks = best_in_budgets(Rankings(configurations), [GIB, 4 * GIB, 8 * GIB])
    assert [speeds(pick) for pick in picks] == [(None, 20.0), (10.0, 20.0), (30.0, None)]
    (pick,) = best_in_budgets(Rankings(configurations, TrainingRecipe.of(SGD)), [8 * GIB])
    assert speeds(pick) == (20.0, 30.0)


def test_best_in_budgets_drops_what_failed_its_cap_check():
    configurations = [make(5 * GIB, 9.0, trial_id="slow"), make(7 * GIB, 11.0, trial_id="fast")]
    failed = check("fast", 8 * GIB, Outcome.OUT_OF_MEMORY, None)
    (pick,) = best_in_budgets(Rankings(configurations, checks=[failed]), [8 * GIB])
    assert speeds(pick) == (9.0, None)
    assert [own.samples_per_second for own in pick.failed] == [11.0]
    crashed = check("fast", 8 * GIB, Outcome.CRASHED, None)
    (pick,) = best_in_budgets(Rankings(configurations, checks=[crashed]), [8 * GIB])
    assert speeds(pick) == (11.0, None)


def test_best_in_budgets_leave_out_what_trains_wrongly():
    wrong = (Flag(FlagKind.LOSS_MISMATCH, 4.0),)
    right = make(GIB, 50.0)
    fast = replace(make(GIB, 90.0, micro_batch=8), flags=wrong)
    other = replace(make(GIB, 99.0, recipe=SGD), flags=wrong)
    (pick,) = best_in_budgets(Rankings([right, fast, other]), [GIB])
    assert (pick.best, pick.other) == (right, None)
    assert pick.contenders == (right,)
    assert pick.left_out == (fast,)


def test_contenders_are_those_whose_intervals_reach_the_fastest():
    configurations = [make(1, 100.0, ci95=0.02), make(1, 97.0, ci95=0.03), make(1, 96.0, ci95=0.0)]
    assert [own.samples_per_second for own in contenders(configurations)] == [100.0, 97.0]


@pytest.mark.parametrize(
    ("memory_mib", "budgets_mib"),
    [((500, 900), [512, 1024]), ((5000, 30000), [8192, 12288, 16384, 24576, 32768])],
)
def test_default_budgets_tell_the_configurations_apart(memory_mib, budgets_mib):
    configurations = [make(size * MIB, 1.0) for size in memory_mib]
    assert default_budgets(configurations) == [size * MIB for size in budgets_mib]
    assert default_budgets([]) == []
