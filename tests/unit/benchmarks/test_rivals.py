"""The other searches of ``tests.benchmarks.best``, which know what our search knows."""

import pytest

from jobs.record import TrialRecord
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.effects.unrecorded import Effect
from orchestrator.units import GIB
from tests.benchmarks.best.grids import Grid
from tests.benchmarks.best.scores import rivals
from tests.benchmarks.grids import make_record, make_spec
from tests.benchmarks.replay import replay

RIVALS = ("Gaussian process", "optuna, GP", "optuna, TPE", "random that fits")


def small_grid() -> Grid:
    """Compiled code is twice as fast, and each sample takes 1 GiB."""
    records: list[TrialRecord] = []
    for compiled in ("none", "inductor_regional"):
        for size in (1, 2, 4, 8, 16, 32):
            speed = (1 + (compiled != "none")) * 100 * size / (size + 2)
            spec = make_spec({"compile": compiled, "micro_batch": size})
            records.append(make_record(spec, (1 + size) * GIB, speed))
    table = {record.trial_id: record for record in records}
    effects = {"compile": {"inductor_regional": Effect(log_time=-0.5, deviation=0.2, models=3)}}
    return Grid(
        name="small",
        table=table,
        predicted_bytes={
            own.trial_id: own.measurements["device_peak_bytes"] for own in table.values()
        },
        priors=TechniquePriors(effects=effects),
        baseline={"compile": "none", "micro_batch": 8},
        budgets=(10 * GIB, 20 * GIB),
    )


@pytest.mark.parametrize("name", RIVALS)
def test_rival_measures_only_what_is_predicted_to_fit_and_every_trial_once(name):
    grid = small_grid()
    asked = replay(rivals(grid, 8, 0)[name], grid.table).asked
    sizes = [grid.table[own].spec.micro_batch for own in asked]
    assert len(set(asked)) == len(asked)
    if name != "Gaussian process":  # It measures the least probable ones last.
        assert max(sizes) == 16
        assert len(asked) == 10


@pytest.mark.parametrize("name", ["Gaussian process", "optuna, GP", "optuna, TPE"])
def test_rival_begins_with_what_the_recorded_effects_expect_to_be_fastest(name):
    grid = small_grid()
    asked = replay(rivals(grid, 8, 0)[name], grid.table, seconds=2.0).asked
    first = [grid.table[own].spec.choices for own in asked]
    assert [(own["compile"], own["micro_batch"]) for own in first] == [
        ("inductor_regional", 16),
        ("inductor_regional", 8),
    ]
