"""Follow-ups of a search: each budget's pick under its cap, the next one where it fails, and nothing twice."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pytest

from jobs import spec as specs
from jobs.record import Outcome, TrialRecord
from jobs.spec import MemoryCap, TrialSpec, spec_from_json
from jobs.trial import run as trial
from orchestrator.analysis.tie_breaks import pairings
from orchestrator.api import load
from orchestrator.planning.settings import FollowUpSpec
from orchestrator.reporting.json_output import to_json
from orchestrator.reporting.publish import publish, summarize_folder
from orchestrator.running.progress import Progress
from orchestrator.running.session import Session
from orchestrator.search.follow_ups import MOST_FAILURES, FollowUps
from orchestrator.search.grid import Grid
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import build_tiny_spec
from tests.support.devices import MIB, Device, make_trial
from tests.support.records import write_run

GIB = 2**30
BUDGETS = (16 * GIB, 24 * GIB, 400 * GIB)
"""The last is more than the simulated device has."""
TRIALS = [make_trial(size, 1) for size in (1, 4, 8, 16, 20, 24, 32, 64)]


def follow_ups(budgets: tuple[int, ...] = BUDGETS) -> FollowUps:
    """An exhaustive search with its follow-ups."""
    return FollowUps(Grid(TRIALS), FollowUpSpec(turns=0, anatomies=0), budgets=budgets, baseline={})


def run_to_the_end(search: FollowUps, device: Device) -> list[TrialRecord]:
    """Ask and tell until the search is exhausted; the follow-ups' records."""
    while (spec := search.ask()) is not None:
        search.tell(device.run(spec))
    assert search.exhausted
    return [record for record in device.ran if record.spec.follow_up is not None]


def caps(records: list[TrialRecord]) -> list[tuple[float, int, Outcome]]:
    """Budget in GiB, micro-batch and outcome of each."""
    found = []
    for record in records:
        assert record.spec.measure.cap is not None
        found.append(
            (record.spec.measure.cap.device_bytes / GIB, record.spec.micro_batch, record.outcome)
        )
    return found


def test_each_pick_is_run_again_under_a_cap_of_its_budget() -> None:
    device = Device()
    records = run_to_the_end(follow_ups(), device)
    assert caps(records) == [(16, 16, Outcome.OK), (24, 32, Outcome.OK)]
    assert len(device.ran) == len(TRIALS) + 2
    (first, _) = records
    picked = next(record for record in device.ran if record.spec.micro_batch == 16)
    assert first.spec.follow_up is not None
    assert first.spec.follow_up.follows == picked.trial_id != first.trial_id
    assert first.spec.measure.cap is not None
    assert first.spec.measure.cap.outside_bytes == round(device.context_mib * MIB)


def test_where_a_pick_fails_the_next_candidates_are_tried_and_no_more_than_some() -> None:
    (second, *_) = [caps(run_to_the_end(follow_ups((24 * GIB,)), Device(capped_mib=3000)))]
    assert second == [(24, 32, Outcome.OUT_OF_MEMORY), (24, 24, Outcome.OK)]
    hopeless = caps(run_to_the_end(follow_ups((24 * GIB,)), Device(capped_mib=30_000)))
    assert [outcome for _, _, outcome in hopeless] == [Outcome.OUT_OF_MEMORY] * MOST_FAILURES


def test_no_follow_up_before_the_search_has_ended_and_none_of_unlike_environments() -> None:
    search, device = follow_ups(), Device()
    asked = [spec for _ in TRIALS if (spec := search.ask()) is not None]
    for spec in asked[:-1]:
        search.tell(device.run(spec))
    assert search.ask() is None
    assert not search.exhausted
    search.tell(Device(device_mib=100_000).run(asked[-1]))
    assert search.exhausted


def test_a_follow_up_travels_and_its_name_tells_it_from_what_it_follows() -> None:
    record = run_to_the_end(follow_ups(), Device())[0]
    assert spec_from_json(specs.to_json(record.spec)) == record.spec
    old = specs.to_json(make_trial(4, 1))
    del old["follow_up"], old["measure"]["cap"], old["measure"]["anatomy"]
    assert spec_from_json(old).trial_id == make_trial(4, 1).trial_id


def test_a_resumed_sweep_meets_its_follow_ups_and_one_cut_short_gives_them_rows(
    tmp_path: Path,
) -> None:
    device, folder = Device(), RunFolder(tmp_path)
    with folder.locked():
        pass

    def session() -> Session:
        progress = Progress(len(TRIALS), 1, (), stream=io.StringIO())
        return Session(follow_ups(), folder, progress, time_budget_seconds=None)

    def run(session: Session, trials: int) -> list[TrialSpec]:
        run_now = []
        while len(run_now) < trials and (spec := session.next_trial()) is not None:
            session.ended(device.run(spec))
            run_now.append(spec)
        return run_now

    cut = session()
    run(cut, len(TRIALS) + 1)
    cut.close("time_budget")
    cut.account()
    records = folder.records()
    assert len(records) == len(TRIALS) + 2
    assert [
        r.rule for r in records.values() if r.spec.follow_up and r.outcome is Outcome.SKIPPED
    ] == ["time_budget"]

    resumed = session()
    assert resumed.reuse(records, [device.environment()], resume=True) == len(TRIALS)
    (last,) = run(resumed, 99)
    assert last.measure.cap is not None
    assert last.measure.cap.device_bytes == 24 * GIB
    assert (resumed.reused, resumed.finished) == (len(TRIALS) + 1, True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose pick for 24 GiB failed under the cap, and whose next one fitted."""
    device = Device(capped_mib=3000)
    run_to_the_end(follow_ups(BUDGETS[:2]), device)
    return write_run(tmp_path_factory.mktemp("run"), device.ran, budgets=list(BUDGETS[:2]))


def test_verdicts_name_what_was_seen_to_fit(folder: Path) -> None:
    summary = summarize_folder(folder)
    (cohort,) = summary.cohorts
    assert [verdict.best and verdict.best.row["micro_batch"] for verdict in cohort.verdicts] == [
        8,
        24,
    ]
    assert all(verdict.best and verdict.seen(verdict.best) for verdict in cohort.verdicts)
    assert [
        [point.row["micro_batch"] for point in verdict.failed] for verdict in cohort.verdicts
    ] == [[16], [32]]


def test_follow_ups_count_nowhere_but_apart(folder: Path) -> None:
    summary = summarize_folder(folder)
    assert len(summary.rows) == len(TRIALS) == sum(summary.counts.values())
    assert len(summary.follow_ups) == 4
    assert summary.follow_up_seconds > 0
    assert {point.repeats for cohort in summary.cohorts for point in cohort.points} == {1}
    assert summary.failures == ()
    run = load(folder)
    assert (len(run.rows), len(run.follow_ups)) == (len(TRIALS), 4)


def test_the_pages_say_what_was_seen(folder: Path) -> None:
    publish(folder)
    report = (folder / "report.md").read_text()
    assert "4 follow-ups" in report
    assert "samples/s under the cap" in report
    (found,) = to_json(summarize_folder(folder))["hardware"]
    assert [budget["seen_to_fit"]["cap_bytes"] for budget in found["budgets"]] == list(BUDGETS[:2])
    assert "24 GiB: batch 32 took 22.4 GiB of the whole device and failed under the cap." in report


def test_a_recommendation_says_whether_its_budget_was_seen(folder: Path) -> None:
    run = load(folder)
    (seen, inferred) = (str(run.recommend(memory_bytes=gib * GIB)) for gib in (24, 20))
    assert "  batch 24: " in seen, "the faster one failed under the cap"
    assert "seen to fit: " in seen
    assert "18.3 GiB under a cap of 24 GiB in trial" in seen
    assert (
        "that it fits is inferred from its peak: no trial of the run saw it under a cap of 20"
        in inferred
    )


def test_a_cap_without_a_gpu_is_unsupported(tmp_path: Path) -> None:
    spec = build_tiny_spec(cap=MemoryCap(device_bytes=GIB))
    record = trial.run(spec, lambda phase: None, isolation="fork", scratch=tmp_path)
    assert (record.outcome, record.rule) == (Outcome.UNSUPPORTED, "memory_cap")


class Drifting(Device):
    """A device that slows down by a thousandth with every trial; micro-batch 20 is truly 0.3 % faster than 24."""

    def speed(self, micro_batch: int, accumulation: int = 1) -> float:
        return (
            300.0
            * (1.003 if micro_batch == 20 else 1.0 if micro_batch == 24 else 0.5)
            * 0.999 ** len(self.ran)
        )


def in_turns(device: Device, turns: int = 4) -> FollowUps:
    """Two close candidates for one budget, the slower one measured first."""
    trials = [
        make_trial(24, 1),
        *(make_trial(size, 1) for size in (1, 2, 4, 8, 12)),
        make_trial(20, 1),
    ]
    search = FollowUps(
        Grid(trials), FollowUpSpec(turns=turns, anatomies=0), budgets=(24 * GIB,), baseline={}
    )
    run_to_the_end(search, device)
    return search


def test_close_candidates_take_turns_there_and_back_and_the_faster_is_verified() -> None:
    device = Drifting()
    in_turns(device)
    again = [record.spec for record in device.ran if record.spec.follow_up is not None]
    assert [spec.micro_batch for spec in again] == [24, 20, 20, 24, 24, 20, 20, 24, 20]
    assert [spec.purpose for spec in again] == ["comparison"] * 8 + ["budget"]
    assert len({spec.trial_id for spec in again}) == len(again)


def test_drift_cancels_in_turns(tmp_path: Path) -> None:
    device = Drifting()
    in_turns(device)
    publish(write_run(tmp_path, device.ran, budgets=[24 * GIB]))
    report = (tmp_path / "report.md").read_text()
    assert (
        "batch 20 is 0.3 % ±0.2 % faster than batch 24 (in turns on one GPU, 4 of each)." in report
    )
    (cohort,) = summarize_folder(tmp_path).cohorts
    (verdict,) = cohort.verdicts
    assert [point.row["micro_batch"] for point in verdict.close] == [24, 20], (
        "the search was misled by the drift"
    )
    assert verdict.best is verdict.close[1]
    (pairing,) = verdict.pairings
    assert pairing.is_faster
    assert pairing.turns == 4
    assert abs(pairing.ratio - 1.003) < pairing.error < 0.003
    run = load(tmp_path)
    answer = run.recommend(memory_bytes=25 * GIB)
    assert answer.best is not None
    assert answer.best.point.row["micro_batch"] == 20
    assert answer.in_turns == (pairing,)
    assert (
        "    batch 20 is 0.3 % ±0.2 % faster than batch 24 (in turns on one GPU, 4 of each)."
        in str(answer)
    )
    assert answer.costs == (), "what was slower in turns is no gain"


def test_what_turns_cannot_tell_apart_stays_as_the_search_has_it() -> None:
    rows = [
        {
            "purpose": "comparison",
            "outcome": "ok",
            "among": ["a", "b"],
            "turn": turn,
            "follows": trial,
        }
        | speed
        for turn, (a, b) in enumerate(
            [(100.0, 101.0), (101.0, 100.0), (100.0, 100.5), (100.5, 100.0)]
        )
        for trial, speed in (("a", {"samples_per_second": a}), ("b", {"samples_per_second": b}))
    ]
    (pairing,) = pairings(rows)
    assert not pairing.is_faster
    assert not pairing.is_slower
    assert pairings(rows[:2]) == (), "one turn has no interval"


def test_a_comparison_is_one_slots_series(tmp_path: Path) -> None:
    device, folder = Drifting(), RunFolder(tmp_path)
    with folder.locked():
        pass
    trials = [make_trial(24, 1), make_trial(20, 1)]
    search = FollowUps(
        Grid(trials), FollowUpSpec(turns=2, anatomies=0), budgets=(24 * GIB, 25 * GIB), baseline={}
    )
    session = Session(
        search, folder, Progress(2, 1, (), stream=io.StringIO()), time_budget_seconds=None
    )
    lengths = []
    while series := session.next_trials():
        lengths.append(len(series))
        for spec in series:
            session.ended(device.run(spec))
    assert lengths == [1, 1, 4, 1, 1]
    assert session.finished
    assert not session.running


def test_picks_are_taken_apart_first_then_the_frontiers_ends_then_the_rest() -> None:
    def taken_apart(budgets: tuple[int, ...], most: int) -> list[int]:
        search = FollowUps(
            Grid(TRIALS), FollowUpSpec(turns=0, anatomies=most), budgets=budgets, baseline={}
        )
        again = [record.spec for record in run_to_the_end(search, Device())]
        apart = [spec for spec in again if spec.purpose == "anatomy"]
        assert again[len(again) - len(apart) :] == apart, "budgets come first"
        assert all(spec.measure.anatomy and spec.measure.steps == 1 for spec in apart)
        return [spec.micro_batch for spec in apart]

    assert taken_apart(BUDGETS[:2], 4) == [16, 32, 64, 1]
    assert taken_apart((), 8) == [64, 1, 4, 8, 16, 20, 24, 32]
    assert taken_apart(BUDGETS, 0) == []


@pytest.mark.parametrize("seconds", [0.0, 20.0, 40.0, 100.0])
def test_follow_ups_cost_no_more_than_their_share_and_budgets_have_the_first_claim(
    seconds: float,
) -> None:
    device = Drifting()
    trials = [make_trial(24, 1), make_trial(20, 1), *(make_trial(size, 1) for size in range(1, 13))]
    wanted = FollowUpSpec(turns=4, share=0.25, least_seconds=seconds)
    again = run_to_the_end(
        FollowUps(Grid(trials), wanted, budgets=(24 * GIB, 30 * GIB), baseline={}), device
    )
    searched = sum(record.slot_seconds for record in device.ran) - sum(
        record.slot_seconds for record in again
    )
    assert sum(record.slot_seconds for record in again) <= max(seconds, 0.25 * searched)
    purposes = Counter(record.spec.purpose for record in again)
    turns = 8 if seconds >= 40 else 0  # all or none
    assert purposes == {"budget": 2, "anatomy": 2 if seconds else 1} | (
        {"comparison": turns} if turns else {}
    )
