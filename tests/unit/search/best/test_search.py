"""The search on grids whose best configurations are known."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.search.base import TOO_SLOW
from orchestrator.search.best.search import BestSearch
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.effects.unrecorded import Effect
from orchestrator.units import GIB
from tests.benchmarks.grids import Table, make_record, make_spec, with_noise
from tests.benchmarks.replay import replay
from tests.benchmarks.simulated_grids import simulated
from tests.support.devices import asked_by

BASELINE: Mapping[str, Any] = {
    "precision": "fp32",
    "activations": "keep",
    "optimizer": "adamw_torch_fused",
    "micro_batch": 8,
    "accumulation": 1,
}
TABLE = simulated()
BUDGETS = [24 * GIB, 80 * GIB]


def search(table: Table = TABLE, **options: Any) -> BestSearch:
    """A search that knows nothing beforehand."""
    given = {"budgets": BUDGETS, "baseline": BASELINE, "priors": TechniquePriors(), **options}
    return BestSearch([record.spec for record in table.values()], **given)


def run(result: BestSearch, table: Table = TABLE) -> list[TrialSpec]:
    """Replay to the end; the trials in order."""
    return asked_by(result, lambda trial: table[trial.trial_id])


def best_speed(table: Table, budget: float, recipe: Mapping[str, str] | None = None) -> float:
    """The most samples per second within a budget, in the plain recipe or any given."""
    speeds = []
    for record in table.values():
        is_recipe = recipe is not None or not record.spec.training_recipe.by_axis
        fits = record.measurements.get("device_peak_bytes", math.inf) <= budget
        if record.outcome is Outcome.OK and is_recipe and fits:
            speeds.append(record.measurements["samples_per_second"])
    return max(speeds)


def with_slow_compiler() -> tuple[Table, TechniquePriors]:
    """A grid with compiled trials of a minute, and priors that know their cost."""
    records: dict[str, TrialRecord] = {}
    for compiler, precision in (("none", "fp32"), ("none", "bf16"), ("inductor", "fp32")):
        for micro_batch in (4, 8, 16):
            choices = {
                **BASELINE,
                "compile": compiler,
                "precision": precision,
                "micro_batch": micro_batch,
            }
            speed = {"none": 100.0, "inductor": 130.0}[compiler]
            record = make_record(
                make_spec(choices),
                micro_batch * GIB,
                speed,
                device_bytes=140 * GIB,
                slot_seconds=3.0 if compiler == "none" else 60.0,
            )
            records[record.trial_id] = record
    priors = TechniquePriors(
        effects={"compile": {"inductor": Effect(overhead_seconds=45.0, models=1)}}
    )
    return records, priors


@pytest.fixture(scope="module")
def searched() -> tuple[BestSearch, list[TrialSpec]]:
    """A whole search, and its trials."""
    result = search()
    return result, run(result)


def test_best_search_finds_the_fastest_in_each_budget_with_few_trials(searched):
    result, asked = searched
    assert len(asked) <= 0.12 * len(TABLE)
    for budget in result.results():
        best = best_speed(TABLE, budget.budget_bytes or 0)
        assert budget.pick.samples_per_second >= 0.98 * best
        assert budget.is_settled


@pytest.mark.parametrize("seed", [0, 18, 23, 51])
def test_best_search_that_knows_nothing_is_not_misled_by_noise(seed):
    table = with_noise(TABLE, 0.01, seed)
    result = search(table)
    run(result, table)
    for budget in result.results():
        pick = TABLE[budget.pick.trial_id].measurements["samples_per_second"]
        assert pick >= 0.98 * best_speed(TABLE, budget.budget_bytes or 0)


def test_best_search_measures_other_recipes_only_if_asked(searched):
    _, asked = searched
    assert not any(trial.training_recipe.by_axis for trial in asked)
    result = search(any_recipe=True)
    run(result)
    own, across = result.results()[0], result.results()[2]
    assert (own.recipe, across.recipe) == ("", "any")
    best = best_speed(TABLE, across.budget_bytes or 0, recipe={})
    assert across.pick.samples_per_second >= 0.98 * best


def test_best_search_states_what_it_considered(searched):
    result, asked = searched
    first = result.results()[0]
    assert first.considered == 72
    assert first.measured == len(asked)
    assert first.ruled_out > 0
    assert first.expected_gain is not None
    assert first.gain_at_most is not None
    assert 0 <= first.expected_gain <= 0.01
    assert 0 <= first.gain_at_most <= 0.05


def test_best_search_with_a_budget_below_everything_says_that_nothing_fits():
    result = search(budgets=[GIB])
    asked = run(result)
    assert len(asked) < 20
    (budget,) = result.results()
    assert budget.pick is None
    assert budget.is_settled


def test_best_search_without_budgets_takes_the_gpus_memory():
    result = search(budgets=[])
    run(result)
    (budget,) = result.results()
    assert budget.budget_bytes == pytest.approx(143_771 * 2**20)
    assert budget.pick.samples_per_second >= 0.98 * best_speed(TABLE, math.inf)


@pytest.mark.parametrize("at_once", [1, 4])
def test_best_search_keeps_to_its_slot_time(at_once):
    result = search(slot_seconds=20.0)
    assert 10 < replay(lambda trials: result, TABLE, at_once=at_once).seconds < 30
    assert result.exhausted
    assert "search_time" in result.summary()["skipped"]


def test_best_search_with_limited_time_allows_a_trial_a_few_times_what_is_expected():
    result = search(slot_seconds=240.0)
    first = result.ask()
    # Nothing is known yet, so half of the time is kept for other trials.
    assert result.allowed_seconds(first) == 120.0
    result.tell(TABLE[first.trial_id])
    second = result.ask()
    assert second is not None
    # A trial of a few seconds may take a quarter of the time, but at most a minute.
    assert result.allowed_seconds(second) == 60.0


def test_best_search_allows_no_trial_much_more_than_the_time_that_is_left():
    result = search(slot_seconds=30.0)
    spent = 0.0
    while (trial := result.ask()) is not None:
        allowed = result.allowed_seconds(trial)
        # A trial is expected to take six seconds at most.
        assert allowed <= max(30.0 - spent, 12.0)
        assert allowed >= 7.5
        spent += TABLE[trial.trial_id].slot_seconds
        result.tell(TABLE[trial.trial_id])
    assert spent > 20.0


def test_best_search_allows_an_expensive_trial_to_end_after_its_time():
    records, priors = with_slow_compiler()
    result = search(records, priors=priors, slot_seconds=80.0)
    spent = 0.0
    while (trial := result.ask()) is not None and trial.choices["compile"] == "none":
        spent += records[trial.trial_id].slot_seconds
        result.tell(records[trial.trial_id])
    assert trial is not None
    # About 48 s are expected: twice as much is more than what is left.
    assert 80.0 - spent < result.allowed_seconds(trial) < 120.0


def test_best_search_does_not_begin_again_what_similar_trials_had_no_time_for():
    sets = [("none", "keep"), ("inductor", "budget_0.2"), ("inductor", "budget_0.5")]
    specs = {}
    for (compiler, activations), micro_batch in itertools.product(sets, (4, 8, 16)):
        own = {"compile": compiler, "activations": activations, "micro_batch": micro_batch}
        spec = make_spec({**BASELINE, **own})
        specs[spec.trial_id] = make_record(spec, micro_batch * GIB, 100.0, slot_seconds=3.0)
    usual = Effect(overhead_seconds=5.0, models=1)
    priors = TechniquePriors(effects={"compile": {"inductor": usual}})
    result = search(specs, priors=priors, slot_seconds=240.0)

    def measured(spec: TrialSpec) -> TrialRecord:
        record = specs[spec.trial_id]
        if spec.choices["compile"] == "none":
            return record
        late = make_record(spec, None, None, slot_seconds=result.allowed_seconds(spec) + 0.5)
        return replace(late, outcome=Outcome.SKIPPED, rule=TOO_SLOW)

    asked = [spec.choices["compile"] for spec in asked_by(result, measured)]
    assert asked.count("inductor") == 1


def test_best_search_of_a_space_lists_no_trial_that_it_did_not_measure():
    result = search(accounts_for_plan=False)
    assert list(result.pending()) == []
    run(result)
    assert list(result.skipped()) == []


def test_best_search_with_an_effective_batch_answers_with_it_alone():
    records: dict[str, TrialRecord] = {}
    for micro_batch, accumulation in ((8, 1), (8, 8), (16, 4), (32, 2), (64, 1)):
        choices = {**BASELINE, "micro_batch": micro_batch, "accumulation": accumulation}
        # The larger micro-batch is faster; the baseline's own batch is fastest of all.
        seconds = 0.1 + micro_batch / 400
        speed = 200.0 if accumulation * micro_batch == 8 else micro_batch / seconds
        record = make_record(make_spec(choices), micro_batch * GIB, speed, device_bytes=140 * GIB)
        records[record.trial_id] = record
    result = search(records, effective_batch=64, budgets=[40 * GIB])
    asked = run(result, records)
    assert asked[0].effective_batch == 8
    (budget,) = result.results()
    assert budget.pick.samples_per_second == pytest.approx(32 / 0.18)


def test_best_search_tries_a_slow_compiler_after_what_is_cheap():
    records, priors = with_slow_compiler()
    asked = run(search(records, priors=priors), records)
    compilers = [trial.choices["compile"] for trial in asked]
    assert "inductor" in compilers
    assert compilers.index("inductor") >= 2


def test_best_search_uses_predictions_of_a_few_sizes():
    predicted = {}
    for trial_id, record in TABLE.items():
        if record.spec.choices["micro_batch"] in (1, 16, 256):
            memory = record.measurements.get("device_peak_bytes")
            if memory:
                predicted[trial_id] = memory
    result = search(predicted_bytes=predicted)
    asked = run(result)
    assert not [trial for trial in asked if TABLE[trial.trial_id].outcome is Outcome.OUT_OF_MEMORY]
    for budget in result.results():
        best = best_speed(TABLE, budget.budget_bytes or 0)
        assert budget.pick.samples_per_second >= 0.98 * best


def test_best_search_leaves_a_host_bound_batch_size_in_large_steps():
    specs = [make_spec({**BASELINE, "micro_batch": size}) for size in range(8, 129, 4)]
    predicted = {spec.trial_id: (4 + spec.micro_batch / 4) * GIB for spec in specs}
    result = BestSearch(
        specs,
        budgets=[80 * GIB],
        baseline=BASELINE,
        priors=TechniquePriors(),
        predicted_bytes=predicted,
    )
    asked = []
    while (trial := result.ask()) is not None:
        asked.append(trial.micro_batch)
        # The host needs 0.1 s for any micro-batch; the GPU, 0.1 s for 80 samples.
        speed = trial.micro_batch / max(0.1, trial.micro_batch / 800)
        is_host_bound = float(trial.micro_batch < 80)
        memory = predicted[trial.trial_id]
        result.tell(make_record(trial, memory, speed, host_bound_share=is_host_bound))
    # The neighbours of the first one would gain little.
    assert asked[0] == 8
    assert asked[1] >= 16
    assert len(asked) <= 7
    [budget] = result.results()
    assert budget.pick.samples_per_second == pytest.approx(800)


LOADERS = ("main_process", "workers_2", "workers_4")


def with_loaders(data_seconds: Mapping[str, float]) -> tuple[BestSearch, list[TrialSpec]]:
    """A search to its end over data loaders that take so long for each sample, and its trials.

    The GPU takes 1 ms for a sample, 1.3 ms with checkpointing.
    """
    specs = []
    for size in (8, 16, 32, 64, 128):
        for loader in LOADERS:
            for activations in ("keep", "checkpoint"):
                choices = {"micro_batch": size, "dataloader": loader, "activations": activations}
                specs.append(make_spec({**BASELINE, **choices}))
    baseline = {**BASELINE, "dataloader": "main_process"}
    result = BestSearch(specs, budgets=[80 * GIB], baseline=baseline, priors=TechniquePriors())
    asked = []
    while (trial := result.ask()) is not None:
        asked.append(trial)
        of_gpu = 0.001 if trial.choices["activations"] == "keep" else 0.0013
        of_data = data_seconds[str(trial.choices["dataloader"])]
        step = trial.micro_batch * max(of_gpu, of_data)
        result.tell(
            make_record(
                trial,
                (4 + trial.micro_batch / 16) * GIB,
                trial.micro_batch / step,
                host_bound_share=0.0,
                data_seconds_median=trial.micro_batch * of_data,
                step_seconds_median=step,
            )
        )
    return result, asked


def test_best_search_tries_no_other_loader_where_the_gpu_does_not_wait_for_data():
    _, asked = with_loaders(dict.fromkeys(LOADERS, 0.00001))
    without_loader = [(trial.micro_batch, trial.choices["activations"]) for trial in asked]
    assert len(without_loader) == len(set(without_loader))


def test_best_search_finds_the_loader_for_which_the_gpu_does_not_wait():
    result, asked = with_loaders({"main_process": 0.003, "workers_2": 0.0015, "workers_4": 0.00001})
    # The GPU waits in the first trial, so this loader comes last in the others.
    assert [trial.choices["dataloader"] for trial in asked].count("main_process") == 1
    [budget] = result.results()
    assert budget.pick.samples_per_second == pytest.approx(1000, rel=0.01)
