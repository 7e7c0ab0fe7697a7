"""Follow-ups of a search: which trials run again, in which order, and what they may cost."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from jobs.gradient_check import GradientCheck
from jobs.record import Outcome, TrialRecord
from jobs.spec import Purpose, TrialSpec
from orchestrator.analysis.dataset import Dataset, dataset_of_records
from orchestrator.analysis.follow_up_results import decisive_check
from orchestrator.analysis.recommendation.offers import as_measured
from orchestrator.planning.keys.config_model import FollowUpPolicy
from orchestrator.reporting.recommendation_notes import notes
from orchestrator.reporting.sections import gradients
from orchestrator.reporting.verbs.tune_result import TuneResults, computed
from orchestrator.reporting.verbs.tune_text import describe
from orchestrator.search.base import Grid
from orchestrator.search.best.search import BestSearch
from orchestrator.search.follow_up_plan import MAX_FAILED_CHECKS
from orchestrator.search.follow_ups import FollowUps
from orchestrator.storage.run_metadata import RunMetadata
from orchestrator.units import GIB, MIB
from tests.support.devices import Device, asked_by, make_trial

BUDGETS = (16 * GIB, 24 * GIB, 400 * GIB)
"""The last is more than the simulated device has."""
TRIALS = [make_trial(size, 1) for size in (1, 4, 8, 16, 20, 24, 32, 64)]
ONLY_CHECKS = FollowUpPolicy(check_gradients=False, tie_break_rounds=0, profiles=0)


def follow_ups(
    budgets: tuple[int, ...] = BUDGETS,
    policy: FollowUpPolicy = ONLY_CHECKS,
    trials: list[TrialSpec] = TRIALS,
) -> FollowUps:
    """An exhaustive search with its follow-ups."""
    return FollowUps(Grid(trials), policy, budgets=budgets, baseline={})


def run_to_the_end(search: FollowUps, device: Device) -> list[TrialRecord]:
    """Ask and tell until the search is exhausted; the follow-ups' records."""
    asked_by(search, device.run)
    assert search.exhausted
    return [record for record in device.ran if record.spec.follow_up is not None]


def checks(records: list[TrialRecord]) -> list[tuple[float, int, Outcome]]:
    """Cap in GiB, micro-batch and outcome of each cap check."""
    found = []
    for record in records:
        cap = record.spec.measure.memory_cap
        assert cap is not None
        found.append((cap.device_bytes / GIB, record.spec.micro_batch, record.outcome))
    return found


def results_of(device: Device, budgets: tuple[int, ...]) -> Dataset:
    """What the report would read from all records."""
    return dataset_of_records(device.ran, RunMetadata(budgets=budgets))


def test_cap_checks_run_the_pick_of_every_budget_again():
    device = Device()
    records = run_to_the_end(follow_ups(), device)
    assert checks(records) == [(16, 16, Outcome.OK), (24, 32, Outcome.OK)]
    assert len(device.ran) == len(TRIALS) + 2


def test_a_pick_of_two_budgets_is_checked_under_the_smaller_cap_alone():
    budgets = (15 * GIB, 16 * GIB)
    device = Device()
    records = run_to_the_end(follow_ups(budgets), device)
    assert checks(records) == [(15, 16, Outcome.OK)]
    results = results_of(device, budgets).main
    assert decisive_check(results.cap_checks, results.budget_picks[1].best.trial_ids, budgets[1])


def test_a_pick_that_fails_under_the_smaller_cap_is_checked_under_the_larger():
    records = run_to_the_end(follow_ups((15 * GIB, 16 * GIB)), Device(capped_mib=2000))
    failed, ok = Outcome.OUT_OF_MEMORY, Outcome.OK
    assert checks(records) == [(15, 16, failed), (15, 8, ok), (16, 16, failed)]


@pytest.mark.parametrize("is_checked", [False, True])
def test_time_that_no_follow_up_can_use_is_the_searchs(is_checked):
    def spent(min_seconds: float) -> tuple[float, float]:
        device = Device()
        search = BestSearch(TRIALS, budgets=(24 * GIB,), accounts_for_plan=False, slot_seconds=6.0)
        policy = ONLY_CHECKS.model_copy(
            update={"verify_budgets": is_checked, "slot_share": 0.0, "min_seconds": min_seconds}
        )
        own = FollowUps(search, policy, budgets=(24 * GIB,), baseline={})
        again = sum(record.slot_seconds for record in run_to_the_end(own, device))
        return sum(record.slot_seconds for record in device.ran) - again, again

    alone, lent = spent(0.0), spent(16.0)
    assert lent[0] > alone[0]
    assert bool(lent[1]) is is_checked
    assert sum(lent) <= 6.0 + 16.0


def test_a_tie_break_has_what_the_search_leaves():
    def searched(rounds: int) -> float:
        device = Drifting()
        trials = [make_trial(size, 1) for size in (24, 20, 1, 2, 4, 8, 12)]
        search = BestSearch(trials, budgets=(24 * GIB,), accounts_for_plan=False, slot_seconds=6.0)
        changed = {"tie_break_rounds": rounds, "slot_share": 0.0, "min_seconds": 15.0}
        policy = ONLY_CHECKS.model_copy(update=changed)
        again = run_to_the_end(FollowUps(search, policy, budgets=(24 * GIB,), baseline={}), device)
        return sum(own.slot_seconds for own in device.ran) - sum(own.slot_seconds for own in again)

    assert searched(2) == searched(0)


def test_cap_check_follows_the_pick_and_keeps_its_context():
    device = Device()
    check = run_to_the_end(follow_ups(), device)[0].spec
    picked = next(record for record in device.ran if record.spec.micro_batch == 16)
    assert check.follow_up.follows_trial == picked.trial_id != check.trial_id
    context_bytes = round(device.context_mib * MIB)
    assert check.measure.memory_cap.non_allocator_bytes == context_bytes


def test_cap_check_that_fails_is_followed_by_the_next_pick():
    records = run_to_the_end(follow_ups((24 * GIB,)), Device(capped_mib=3000))
    assert checks(records) == [(24, 32, Outcome.OUT_OF_MEMORY), (24, 24, Outcome.OK)]


def test_cap_checks_of_a_budget_end_after_some_failures():
    records = run_to_the_end(follow_ups((24 * GIB,)), Device(capped_mib=30_000))
    outcomes = [outcome for _, _, outcome in checks(records)]
    assert outcomes == [Outcome.OUT_OF_MEMORY] * MAX_FAILED_CHECKS


def test_cap_checks_change_the_picks_and_nothing_else():
    budgets = BUDGETS[:2]
    device = Device(capped_mib=3000)
    run_to_the_end(follow_ups(budgets), device)
    dataset = results_of(device, budgets)
    picks = dataset.main.budget_picks
    assert [pick.best and pick.best.row["micro_batch"] for pick in picks] == [8, 24]
    assert [[own.row["micro_batch"] for own in pick.failed] for pick in picks] == [[16], [32]]
    assert len(dataset.rows) == len(TRIALS)
    assert len(dataset.follow_ups) == 4
    assert {len(own.trial_ids) for own in dataset.main.configurations} == {1}


def test_follow_ups_wait_for_the_last_record_of_the_search():
    search, device = follow_ups(), Device()
    asked = [trial for _ in TRIALS if (trial := search.ask()) is not None]
    for trial in asked[:-1]:
        search.tell(device.run(trial))
    assert search.ask() is None
    assert not search.exhausted
    search.tell(device.run(asked[-1]))
    assert search.ask() is not None


def test_follow_ups_of_several_environments_do_not_run():
    search, device = follow_ups(), Device()
    asked = [trial for _ in TRIALS if (trial := search.ask()) is not None]
    for trial in asked[:-1]:
        search.tell(device.run(trial))
    search.tell(Device(device_mib=100_000).run(asked[-1]))
    assert search.exhausted


def test_follow_ups_of_a_resumed_search_are_the_same():
    device = Device()
    records = run_to_the_end(follow_ups(), device)
    resumed = follow_ups()
    for record in device.ran[: len(TRIALS)]:
        resumed.tell(record)
    # One of the two was measured before the interruption: its record comes when it is asked for.
    first = resumed.ask()
    assert first == records[0].spec
    resumed.tell(records[0])
    assert list(resumed.pending()) == [records[1].spec]
    assert resumed.ask() == records[1].spec


class Drifting(Device):
    """A device that slows down by 0.1 % with every trial. Micro-batch 20 is truly 0.3 % faster than
    24."""

    def speed(self, micro_batch: int, accumulation: int = 1) -> float:
        speeds = {20: 300.9, 24: 300.0}
        return speeds.get(micro_batch, 150.0) * 0.999 ** len(self.ran)


def run_tie_break(device: Device) -> None:
    """A search with two contenders for one budget, of which the slower one is measured first."""
    trials = [make_trial(size, 1) for size in (24, 1, 2, 4, 8, 12, 20)]
    policy = FollowUpPolicy(check_gradients=False, tie_break_rounds=4, profiles=0)
    run_to_the_end(follow_ups((24 * GIB,), policy, trials), device)


def test_tie_break_goes_there_and_back_before_the_check_of_its_winner():
    device = Drifting()
    run_tie_break(device)
    again = [record.spec for record in device.ran if record.spec.follow_up is not None]
    assert [spec.micro_batch for spec in again] == [24, 20, 20, 24, 24, 20, 20, 24, 20]
    assert [spec.purpose for spec in again] == [Purpose.TIE_BREAK] * 8 + [Purpose.CAP_CHECK]
    assert len({spec.trial_id for spec in again}) == len(again)


def test_tie_break_is_not_misled_by_a_drift():
    device = Drifting()
    run_tie_break(device)
    dataset = results_of(device, (24 * GIB,))
    (pick,) = dataset.main.budget_picks
    (comparison,) = pick.comparisons
    assert [own.row["micro_batch"] for own in pick.contenders] == [24, 20], "misled by the drift"
    assert pick.best is pick.contenders[1]
    assert comparison.is_faster
    assert comparison.rounds == 4
    assert abs(comparison.ratio - 1.003) < comparison.ci95 < 0.003


class Unequal(Drifting):
    """The same device with rows of unequal length."""

    def run(self, spec: TrialSpec) -> TrialRecord:
        record = super().run(spec)
        self.ran[-1] = replace(
            record, measurements={**record.measurements, "longest_row_tokens": 900}
        )
        return self.ran[-1]


@pytest.mark.parametrize(("budget", "compared"), [(24 * GIB, [4, 24] * 2), (6 * GIB, [])])
def test_gain_on_rows_of_unequal_length_is_of_interleaved_rounds(budget, compared):
    trials = [make_trial(size, 1) for size in (4, 1, 24)]
    policy = FollowUpPolicy(
        check_gradients=False, verify_budgets=False, tie_break_rounds=0, gain_rounds=2, profiles=0
    )
    own = trials[0].choices
    gains: list[Any] = []
    for device in (Unequal(), Drifting()):
        search = FollowUps(Grid(trials), policy, budgets=(budget,), baseline=own)
        sizes = [record.spec.micro_batch for record in run_to_the_end(search, device)]
        # Every round goes the other way round.
        assert sorted(sizes) == sorted(compared if isinstance(device, Unequal) else [])
        run = RunMetadata(name="own", budgets=(budget,), baseline=own)
        (result,) = computed(dataset_of_records(device.ran, run)).results
        gains.append((result.gain, result.gain_rounds, "interleaved" in describe_one(result)))
    if not compared:
        assert gains == [(None, 0, False)] * 2
        return
    # The drift slows the pick, which the search measured later; rounds there and back do not.
    (fair, rounds, is_said), (drifted, *others) = gains
    assert (rounds, is_said, others) == (2, True, [0, False])
    assert abs(fair - 2) < 1e-5 < 0.003 < 2 - drifted


def describe_one(result: Any) -> str:
    """The result as text."""
    return describe(TuneResults(name="own", results=(result,)), {})


@pytest.mark.parametrize(
    ("budgets", "limit", "sizes"),
    [(BUDGETS[:2], 4, [16, 32, 64, 1]), ((), 8, [64, 1, 4, 8, 16, 20, 24, 32]), (BUDGETS, 0, [])],
)
def test_profiles_are_of_picks_then_ends_of_the_front_then_the_rest(budgets, limit, sizes):
    policy = FollowUpPolicy(check_gradients=False, tie_break_rounds=0, profiles=limit)
    again = [record.spec for record in run_to_the_end(follow_ups(budgets, policy), Device())]
    profiles = [spec for spec in again if spec.purpose is Purpose.PROFILE]
    assert [spec.micro_batch for spec in profiles] == sizes
    assert again[len(again) - len(profiles) :] == profiles, "budgets come first"
    assert all(spec.measure.profile and spec.measure.steps == 1 for spec in profiles)


@pytest.mark.parametrize("min_seconds", [0.0, 20.0, 40.0, 100.0])
def test_follow_ups_cost_no_more_than_their_share(min_seconds):
    device, policy = (
        Drifting(),
        FollowUpPolicy(check_gradients=False, slot_share=0.25, min_seconds=min_seconds),
    )
    trials = [make_trial(size, 1) for size in (24, 20, *range(1, 13))]
    again = run_to_the_end(follow_ups((24 * GIB, 30 * GIB), policy, trials), device)
    spent = sum(record.slot_seconds for record in again)
    searched = sum(record.slot_seconds for record in device.ran) - spent
    assert spent <= max(min_seconds, 0.25 * searched)
    # Checks have the first claim, and a tie-break runs whole or not at all.
    expected: dict[Any, int] = {Purpose.CAP_CHECK: 1, Purpose.PROFILE: 2}
    if min_seconds >= 40:
        expected[Purpose.TIE_BREAK] = 8
    assert Counter(record.spec.purpose for record in again) == expected


class Compiling(Device):
    """A device whose trials compile for 10 s in their first step, or for 2 s from the cache."""

    def run(self, spec: TrialSpec) -> TrialRecord:
        self.overhead_seconds = 5.0 if spec.follow_up is not None else 13.0
        record = super().run(spec)
        first_step = {"first_step_seconds": self.overhead_seconds - 3.0}
        self.ran[-1] = replace(record, measurements={**record.measurements, **first_step})
        return self.ran[-1]


@pytest.mark.parametrize(("compiled", "checked"), [("inductor_regional", 2), ("none", 1)])
def test_checks_of_compiled_picks_expect_a_warm_cache(compiled, checked):
    device = Compiling()
    trials = []
    for size in (16, 24):
        trial = make_trial(size, 1)
        trials.append(replace(trial, choices={**trial.choices, "compile": compiled}))
    # Enough for two checks from a warm cache, but only for one that compiles again.
    policy = FollowUpPolicy(
        check_gradients=False, tie_break_rounds=0, profiles=0, slot_share=0.0, min_seconds=20.0
    )
    again = run_to_the_end(follow_ups((16 * GIB, 24 * GIB), policy, trials), device)
    assert len(again) == checked


@pytest.mark.parametrize(("overtime", "checked"), [(0.0, 1), (19.5, 0)])
def test_overtime_of_the_search_is_the_follow_ups(overtime, checked, monkeypatch):
    monkeypatch.setattr(Grid, "overtime_seconds", overtime)
    policy = ONLY_CHECKS.model_copy(update={"slot_share": 0.0, "min_seconds": 20.0})
    assert len(run_to_the_end(follow_ups((24 * GIB,), policy), Device())) == checked


def test_time_of_an_earlier_check_counts_although_its_trial_is_no_pick_any_more():
    device = Device()
    (check,) = run_to_the_end(follow_ups((24 * GIB,), trials=TRIALS[:4]), device)
    # Enough for this check, and for no second one.
    seconds = 1.5 * check.slot_seconds
    policy = ONLY_CHECKS.model_copy(update={"slot_share": 0.0, "min_seconds": seconds})
    resumed = follow_ups((24 * GIB,), policy)
    assert resumed.considers(check.spec)
    resumed.tell(check)
    assert run_to_the_end(resumed, Device()) == []


class WithGradients(Device):
    """A device whose gradients are wrong if it compiles."""

    def run(self, spec: TrialSpec) -> TrialRecord:
        record = super().run(spec)
        if spec.measure.gradients:
            error = 0.3 if "compile" in spec.choices else 0.001
            check = GradientCheck(
                tensors=197,
                unresolved=0,
                worst="layers.3.weight",
                error=error,
                bound=0.02,
                cosine=1.0,
                number_format="bfloat16",
                typical=0.004,
            )
            found = {**record.measurements, **check.measurements()}
            self.ran[-1] = record = replace(record, measurements=found)
        return record


def test_gradients_of_a_pick_that_differ_give_its_place_to_the_next_best():
    plain = [make_trial(size, 1) for size in (8, 16)]
    fast = [replace(own, choices={**own.choices, "compile": "inductor"}) for own in plain]
    policy = FollowUpPolicy(verify_budgets=False, tie_break_rounds=0, profiles=0)
    device, budget = WithGradients(), (24 * GIB,)
    again = run_to_the_end(follow_ups(budget, policy, [*fast, *TRIALS[:2]]), device)
    assert [record.spec.purpose for record in again] == [Purpose.GRADIENTS] * 2
    assert [record.spec.choices["micro_batch"] for record in again] == [16, 4]
    assert [record.spec.micro_batch for record in again] == [2, 2], "few rows are enough"
    results = results_of(device, budget).main
    (pick,) = results.budget_picks
    assert pick.best.micro_batch == 4
    assert [own.micro_batch for own in pick.left_out] == [16, 8], "the same code computes both"
    assert not any(own.loss_flags for own in pick.left_out)
    (best,) = notes(results, as_measured(pick.best))[-1:]
    assert best == (
        "gradients agree in all 197 tensors, worst 0.1 % where bf16 explains 2 % (layers.3.weight)"
    )
    section = gradients.make(results_of(device, budget), results)
    assert "layers.3.weight by 30 % where bf16 explains 2 %" in section.notes[0]
