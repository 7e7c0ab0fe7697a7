"""The frontier search: what it asks for, what it skips and why."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrator.search.frontier.search import FrontierSearch

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.search.grid import Grid
from orchestrator.units import GIB
from tests.benchmarks.grids import Table, make_record, make_spec, recorded
from tests.benchmarks.replay import random_order, replay
from tests.benchmarks.replay_scores import recall
from tests.benchmarks.simulated_grids import SimulatedTechnique, simulated

MAX_MISSES = 2
"""Of 30 drawn grids: those on whose fronts the search may miss a point. The bounds are
statistical."""


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


def run(table: Table, **options: Any) -> tuple[FrontierSearch, list[str]]:
    """The search at its end, and the trials that it asked for."""
    search = FrontierSearch([record.spec for record in table.values()], **options)
    asked: list[str] = []
    while (trial := search.ask()) is not None:
        asked.append(trial.trial_id)
        search.tell(table[trial.trial_id])
    assert search.exhausted
    return search, asked


def batches(*sizes: int, repeats: int = 1) -> list[TrialSpec]:
    """One technique at some micro-batches."""
    specs = [make_spec({"micro_batch": size, "accumulation": 1}) for size in sizes]
    return [replace(spec, repeat=repeat) for spec in specs for repeat in range(repeats)]


def affine_record(spec: TrialSpec, *, largest: int = 10**9) -> TrialRecord:
    """Memory affine in the micro-batch, a speed that saturates; out of memory above ``largest``."""
    if spec.micro_batch > largest:
        return make_record(spec, None, None)
    speed = spec.micro_batch / (0.05 + spec.micro_batch / 100)
    return make_record(spec, (1 + spec.micro_batch) * GIB, speed)


def test_search_with_eight_slots_recalls_as_much() -> None:
    assert replay(FrontierSearch, recorded(), at_once=8).recall >= 0.99


def test_search_that_is_asked_ahead_measures_the_same_trials() -> None:
    table = recorded()
    search = FrontierSearch([record.spec for record in table.values()], audit_fraction=0.0)
    ran, ahead = [], search.ask()
    while ahead is not None:
        if (started := search.reconsider(ahead)) is not None:
            ran.append(started.trial_id)
            ahead = search.ask()
            search.tell(table[started.trial_id])
        ahead = ahead or search.ask()
    assert ran == run(table, audit_fraction=0.0)[1]


@pytest.mark.parametrize("seconds", [150, 250, 350])
def test_search_that_is_cut_has_found_more_than_random_order(seconds: float) -> None:
    table = simulated()
    by_chance = [replay(random_order(seed), table, seconds=seconds).recall for seed in range(5)]
    assert replay(FrontierSearch, table, seconds=seconds).recall > max(by_chance)


def test_grid_recalls_everything_at_full_cost() -> None:
    found = replay(Grid, recorded())
    assert (found.trials, found.cost, found.recall) == (144, 1.0, 1.0)


@settings(deadline=None, max_examples=20)
@given(table=GRIDS)
def test_search_measures_or_skips_every_trial_with_evidence(table: Table) -> None:
    search, asked = run(table)
    skipped = list(search.skipped())
    assert sorted([*asked, *(record.trial_id for record in skipped)]) == sorted(table)
    assert list(search.pending()) == []
    for record in skipped:
        assert any(trial_id in record.reason for trial_id in asked), "no evidence"


@settings(deadline=None, max_examples=20)
@given(table=GRIDS, seed=st.integers(0, 5))
def test_search_with_equal_records_asks_for_equal_trials(table: Table, seed: int) -> None:
    assert run(table, seed=seed)[1] == run(table, seed=seed)[1]


@settings(deadline=None, max_examples=20)
@given(table=GRIDS, data=st.data())
def test_search_never_asks_for_a_recorded_trial(table: Table, data: st.DataObject) -> None:
    search = FrontierSearch([record.spec for record in table.values()])
    earlier = data.draw(st.lists(st.sampled_from(list(table)), unique=True))
    for trial_id in earlier:
        search.tell(table[trial_id])
    while (trial := search.ask()) is not None:
        assert trial.trial_id not in earlier
        search.tell(table[trial.trial_id])
    assert search.exhausted


def test_search_hardly_ever_skips_a_front_point_on_drawn_grids() -> None:
    misses = 0
    for seed in range(30):
        table = drawn_grid(random.Random(seed))
        search, asked = run(table)
        misses += recall(table, asked) < 1.0
        too_large = [own for own in search.skipped() if own.rule == "more_than_the_device"]
        assert all(table[own.trial_id].outcome is Outcome.OUT_OF_MEMORY for own in too_large)
    assert misses <= MAX_MISSES


def test_search_does_not_measure_the_same_host_limit_twice() -> None:
    table = simulated(host_variation=2.5)
    search, asked = run(table, audit_fraction=0.0)
    skipped = [record for record in search.skipped() if record.rule == "host_bound"]
    assert skipped
    for record in skipped:
        (evidence,) = (trial_id for trial_id in asked if trial_id in record.reason)
        assert table[evidence].measurements["host_bound_share"] == 1.0
        for axis in ("micro_batch", "activations", "optimizer"):
            assert table[evidence].spec.choices[axis] == record.spec.choices[axis]


def test_search_trusts_a_host_limit_only_if_it_was_the_whole_speed() -> None:
    table = {}
    for trial_id, record in simulated(host_variation=2.5).items():
        if record.outcome is Outcome.OK:
            figures = {**record.measurements, "host_bound_share": 0.9}
            table[trial_id] = replace(record, measurements=figures)
    search, _ = run(table)
    assert {record.rule for record in search.skipped()} == {"dominated"}


def test_search_uses_predicted_memory_that_comes_late() -> None:
    table = simulated()
    memory = {own: record.measurements["device_peak_bytes"] for own, record in table.items()}
    predicted: dict[str, float] = {}
    search = FrontierSearch(
        [record.spec for record in table.values()], predicted_bytes=predicted, audit_fraction=0.0
    )
    asked = []
    while (trial := search.ask()) is not None:
        asked.append(trial.trial_id)
        search.tell(table[trial.trial_id])
        predicted.update(memory)
    assert recall(table, asked) == 1.0
    assert len(asked) < len(run(table, audit_fraction=0.0)[1])


def test_audits_are_drawn_by_the_seed_and_know_their_errors() -> None:
    search, asked = run(simulated())
    audited = {audit.trial_id for audit in search.audits}
    assert len(search.audits) >= 2
    assert audited <= set(asked)
    assert not any(audit.contradicts for audit in search.audits)
    assert all(audit.memory_error is not None for audit in search.audits)
    assert {audit.trial_id for audit in run(simulated(), seed=1)[0].audits} != audited


def test_audits_with_fraction_zero_do_not_run() -> None:
    assert run(simulated(), audit_fraction=0.0)[0].audits == ()


def test_audit_that_contradicts_makes_the_search_decide_anew() -> None:
    # Against every sign, memory halves from micro-batch 32 on.
    search = FrontierSearch(batches(1, 2, 4, 8, 16, 32, 64), audit_fraction=1.0)
    while (trial := search.ask()) is not None:
        size = trial.micro_batch
        memory = (size if size < 32 else size // 8) * GIB
        search.tell(make_record(trial, memory, 5.0 * size, device_bytes=20 * GIB))
    contradicting = [audit for audit in search.audits if audit.contradicts]
    assert any(audit.rule == "more_than_the_device" for audit in contradicting)
    assert list(search.skipped()) == list(search.pending()) == []


def test_summary_adds_up_and_counts_audits() -> None:
    search, asked = run(simulated())
    summary: Mapping[str, Any] = search.summary()
    assert (summary["kind"], summary["planned"]) == ("frontier", 288)
    assert summary["measured"] == len(asked) == 288 - sum(summary["skipped"].values())
    assert summary["audit"]["audited"] == len(search.audits)


def test_trial_larger_than_one_out_of_memory_is_skipped_with_its_id() -> None:
    specs = batches(1, 2, 4, 8, 16, 32)
    search = FrontierSearch(specs, audit_fraction=0.0)
    while (trial := search.ask()) is not None:
        search.tell(affine_record(trial, largest=4))
    skipped = {record.spec.micro_batch: record for record in search.skipped()}
    assert set(skipped) == {16, 32}
    assert {record.rule for record in skipped.values()} == {"out_of_memory_below"}
    assert specs[3].trial_id in skipped[16].reason


def test_repeats_are_measured_together() -> None:
    search = FrontierSearch(batches(1, 64, repeats=3))
    asked = []
    while (trial := search.ask()) is not None:
        asked.append((trial.micro_batch, trial.repeat))
        search.tell(affine_record(trial))
    assert asked == [(size, repeat) for size in (1, 64) for repeat in range(3)]


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - {Outcome.OK, Outcome.OUT_OF_MEMORY}))
def test_search_that_learns_nothing_measures_everything(outcome: Outcome) -> None:
    specs = batches(1, 2, 4)
    search = FrontierSearch(specs)
    asked = []
    while (trial := search.ask()) is not None:
        asked.append(trial.trial_id)
        search.tell(TrialRecord(spec=trial, outcome=outcome, reason="x"))
    assert sorted(asked) == sorted(spec.trial_id for spec in specs)


def test_trials_of_different_recipes_are_all_measured() -> None:
    names = ("a", "b", "c")
    specs = [make_spec({"attention": own, "adapter": own}, {"adapter": own}) for own in names]
    table = {spec.trial_id: make_record(spec, GIB, 10.0) for spec in specs}
    assert sorted(run(table)[1]) == sorted(table)


def test_outstanding_trials_are_not_asked_for_again() -> None:
    specs = batches(1, 2, 4, 8)
    search = FrontierSearch(specs)
    asked = [trial.trial_id for _ in specs if (trial := search.ask()) is not None]
    assert sorted(asked) == sorted(spec.trial_id for spec in specs)
    assert search.ask() is None
    assert not search.exhausted
