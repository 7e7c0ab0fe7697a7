"""The frontier search: what it asks for, what it skips and why."""

import random
import statistics
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.search.best.front import FrontierSearch
from orchestrator.units import GIB
from tests.benchmarks.grids import Table, make_record, make_spec
from tests.benchmarks.replay_scores import height
from tests.benchmarks.simulated_grids import SimulatedTechnique, simulated
from tests.support.devices import asked_by


def drawn_grid(draw: random.Random) -> Table:
    """A simulated grid of two to four techniques, up to three optimizers, and any micro-batches."""
    techniques = {}
    for precision in ("fp32", "bf16")[: draw.randint(1, 2)]:
        for activations in ("keep", "checkpoint"):
            techniques[precision, activations] = SimulatedTechnique(
                base_mib=draw.uniform(500, 6000),
                sample_mib=draw.uniform(1, 900),
                base_seconds=draw.uniform(0.01, 0.05),
                samples_per_second=draw.uniform(20, 500),
                host_seconds=draw.uniform(0.01, 0.2),
            )
    optimizers = {"adamw": (0.0, 0.0)}
    for number in range(draw.randint(0, 2)):
        optimizers[f"other_{number}"] = (draw.uniform(-400, 3000), draw.uniform(-0.01, 0.2))
    return simulated(
        techniques=techniques,
        optimizers=optimizers,
        micro_batches=sorted(draw.sample(range(1, 301), draw.randint(1, 8))),
        device_mib=draw.uniform(8000, 200_000),
    )


GRIDS = st.builds(drawn_grid, st.randoms(use_true_random=False))
FEW = settings(deadline=None, max_examples=5)
"""Each example is a whole search."""


def run(table: Table) -> tuple[FrontierSearch, list[str]]:
    """The search at its end, and the trials that it asked for."""
    search = FrontierSearch([record.spec for record in table.values()])
    asked = asked_by(search, lambda trial: table[trial.trial_id])
    assert search.exhausted
    return search, [trial.trial_id for trial in asked]


def batches(*sizes: int, repeats: int = 1) -> list[TrialSpec]:
    """One technique at some micro-batches."""
    specs = [make_spec({"micro_batch": size, "accumulation": 1}) for size in sizes]
    return [replace(spec, repeat=repeat) for spec in specs for repeat in range(repeats)]


def affine_record(spec: TrialSpec) -> TrialRecord:
    """Memory affine in the micro-batch, and a speed that saturates."""
    speed = spec.micro_batch / (0.05 + spec.micro_batch / 100)
    return make_record(spec, (1 + spec.micro_batch) * GIB, speed)


@FEW
@given(table=GRIDS)
def test_search_measures_or_skips_every_trial_with_evidence(table):
    search, asked = run(table)
    skipped = list(search.skipped())
    assert sorted([*asked, *(record.trial_id for record in skipped)]) == sorted(table)
    assert list(search.pending()) == []
    for record in skipped:
        named = [trial_id for trial_id in asked if trial_id in record.reason]
        assert len(named) == (record.rule == "cannot_gain"), record.reason


def test_search_finds_nearly_the_whole_height_of_drawn_grids():
    heights = []
    for seed in range(10):
        table = drawn_grid(random.Random(seed))
        if any(record.outcome is Outcome.OK for record in table.values()):
            heights.append(height(table, run(table)[1]))
    assert statistics.fmean(heights) >= 0.99


def test_audit_that_contradicts_makes_the_search_decide_anew():
    # Against every sign, memory halves from micro-batch 32 on.
    search = FrontierSearch(batches(1, 2, 4, 8, 16, 32, 64), audit_fraction=1.0)
    while (trial := search.ask()) is not None:
        size = trial.micro_batch
        memory = (size if size < 32 else size // 8) * GIB
        search.tell(make_record(trial, memory, 5.0 * size, device_bytes=20 * GIB))
    contradicting = [audit for audit in search.audits if audit.contradicts]
    assert {audit.rule for audit in contradicting} <= {"does_not_fit", "out_of_memory_below"}
    assert contradicting
    assert list(search.skipped()) == list(search.pending()) == []


def test_repeats_are_measured_together():
    search = FrontierSearch(batches(1, 64, repeats=3))
    asked = [(trial.micro_batch, trial.repeat) for trial in asked_by(search, affine_record)]
    assert asked == [(size, repeat) for size in (1, 64) for repeat in range(3)]


def test_trials_of_different_recipes_are_all_measured():
    names = ("a", "b", "c")
    specs = [make_spec({"attention": own, "adapter": own}, {"adapter": own}) for own in names]
    table = {spec.trial_id: make_record(spec, GIB, 10.0) for spec in specs}
    assert sorted(run(table)[1]) == sorted(table)


def test_trials_of_a_recipe_that_does_not_run_are_skipped_for_that_reason():
    sizes = (1, 2, 4)
    runs = [make_spec({"micro_batch": size, "adapter": "none"}) for size in sizes]
    fails = [
        make_spec({"micro_batch": size, "adapter": "own"}, {"adapter": "own"}) for size in sizes
    ]
    search = FrontierSearch([*runs, *fails], audit_fraction=0.0)
    while (trial := search.ask()) is not None:
        record = affine_record(trial)
        if trial.training_recipe == fails[0].training_recipe:
            record = TrialRecord(spec=trial, outcome=Outcome.FAILED, reason="x")
        search.tell(record)
    rules = {
        record.rule
        for record in search.skipped()
        if record.spec.training_recipe == fails[0].training_recipe
    }
    assert rules == {"does_not_run"}
