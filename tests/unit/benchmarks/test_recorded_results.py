"""What benchmarks on GPUs make of a run's rows."""

from __future__ import annotations

import contextlib
import datetime
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.steady_state import USUAL_SECONDS, USUAL_SPREAD
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from tests.benchmarks import inspected, observing, pace, paired, searched, spread
from tests.benchmarks.efficiency import account
from tests.benchmarks.grids import RUN, recorded
from tests.benchmarks.repeats import repeated, report
from tests.support.records import make_record, write_run


def test_efficiency_accounts_for_every_second_of_the_slots() -> None:
    starts = {"a": [10.0, 15.0], "b": [11.0, 16.5]}
    rows = [
        {
            "gpu_uuid": gpu,
            "started_at": datetime.datetime.fromtimestamp(start, datetime.UTC),
            "slot_seconds": 4.0,
            "setup_seconds": 1.0,
            "first_step_seconds": 0.5,
            "counted_seconds": 2.0,
        }
        for gpu, begun in starts.items()
        for start in begun
    ]
    found = account(rows, 2, began=3.0, took=20.0)
    assert (found.start_seconds, found.span_seconds, found.trial_seconds) == (7.0, 10.5, 16.0)
    assert (found.before_seconds, found.between_seconds, found.after_seconds) == (1.0, 2.5, 1.5)
    rest = found.before_seconds + found.between_seconds + found.after_seconds
    assert found.trial_seconds + rest == 2 * found.span_seconds
    assert found.phase_seconds == {
        "setup": 1.0,
        "first step": 0.5,
        "counted steps": 2.0,
        "rest": 0.5,
    }


def test_the_pace_is_of_the_whole_span() -> None:
    row = {"slot_seconds": 3.0, "overhead_seconds": 1.5, "outcome": "ok"}
    begun = datetime.datetime.fromtimestamp(100.0, datetime.UTC)
    rows = [
        {**row, "started_at": begun + datetime.timedelta(seconds=4 * place)} for place in range(3)
    ]
    follow_up = {**rows[-1], "follows": "another", "slot_seconds": 100.0}
    never = {**row, "started_at": None, "outcome": "skipped"}
    assert list(pace.report([*rows, follow_up, never])) == [
        "3 trials (3 ok) in 11.0 s, of which 9.0 s of slot time:",
        "16.4 a GPU-minute; the median trial took 1.50 s beside counted steps",
    ]


def test_a_pace_is_of_trials_of_the_plan(tmp_path: Path) -> None:
    pace.write_config(path := tmp_path / "drawn.yaml", pace.CONFIG, 5, 0)
    whole = {spec.trial_id for spec in plan(load_config(pace.CONFIG), has_gpu=True).trials}
    drawn = [spec.trial_id for spec in plan(load_config(path), has_gpu=True).trials]
    assert len(set(drawn) & whole) == 5


def test_repeats_of_several_runs_meet_and_those_of_the_host_do_not(tmp_path: Path) -> None:
    def run(name: str, speed: float) -> Path:
        figures = {"peak_allocated_bytes": 100, "host_bound_share": 0.0, "gpu_uuid": name}
        records = [
            make_record(
                micro_batch=2,
                repeat=repeat,
                measurements={**figures, "samples_per_second": speed + repeat},
            )
            for repeat in range(2)
        ]
        dry = make_record(micro_batch=1, measurements={**figures, "host_bound_share": 0.9})
        return write_run(tmp_path / name, [*records, dry])

    (found,) = repeated([run("one", 99.0), run("other", 100.0)], fewest=4)
    assert sorted(found.speeds) == [99.0, 100.0, 100.0, 101.0]
    assert found.variation == pytest.approx(0.0082, abs=0.0001)
    assert (found.gpus, found.peak_bytes) == (2, frozenset({100}))
    assert (
        list(report([found]))[-1]
        == "\n1 of 1 configurations vary by 1 % or less: median 0.82%, worst 0.82%"
    )


def test_a_searched_run_meets_the_same_configurations_of_the_grid() -> None:
    run = RUN.parent / "2026-11-22-frontier_search-2xh200"
    beside_all, beside_its_own = (
        list(searched.report(run, recorded(grid)))
        for grid in (RUN / "trials.parquet", run / "grid" / "trials.parquet")
    )
    assert beside_all[0] == "89 of 288 configurations measured in 295 s of slot time"
    assert beside_its_own[0] == "73 of 216 configurations measured in 243 s of slot time"
    assert (
        beside_its_own[-4].split(":")[1]
        == " 100.0% of the frontiers' height, 100.0% of their points within 2%"
    )
    assert (
        beside_its_own[-2]
        == "  by the figures that the search itself measured: 88.5% of the 52 points"
    )
    assert beside_its_own[-3] == "  of the 31 of the 52 points whose speed is the GPU's own: 100.0%"
    assert (
        beside_its_own[-1]
        == "of 135 reasons the grid is over 2% beyond the memory of 2, the speed of 2"
    )


def test_a_search_and_its_grid_on_one_gpu() -> None:
    run = RUN.parent / "2026-11-23-frontier_search-2xh200"
    lines = list(searched.report(run, recorded(run / "grid" / "trials.parquet")))
    assert lines[0] == "92 of 288 configurations measured in 227 s of slot time"
    assert (
        lines[-4].split(":")[1]
        == "  99.2% of the frontiers' height,  92.6% of their points within 2%"
    )
    assert lines[-3] == "  of the 14 of the 54 points whose speed is the GPU's own: 92.9%"
    assert lines[-2] == "  by the figures that the search itself measured: 100.0% of the 54 points"
    assert lines[-1] == "of 188 reasons the grid is over 2% beyond the memory of 0, the speed of 0"


def test_what_is_read_meanwhile_is_compared_round_by_round(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slower = [0.0], [1.0]

    @contextlib.contextmanager
    def reading() -> Iterator[None]:
        slower[0] = 1.1
        yield
        slower[0] = 1.0

    def step() -> None:
        now[0] += slower[0]

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    found = observing.measure(
        step, {observing.NOTHING: contextlib.nullcontext, "all": reading}, rounds=2, steps=4
    )
    assert found == {observing.NOTHING: pytest.approx([1.0, 1.0]), "all": pytest.approx([1.1, 1.1])}
    rounds = {observing.NOTHING: [1.0, 2.0, 4.0], "all": [1.1, 2.1, 4.8]}
    assert list(observing.report(rounds))[-1] == "| all | 2.1000 | +10.0% | +5.0% | +20.0% |"


def test_inspected_trials_stand_beside_the_others() -> None:
    found = {
        "inspected": [{"step_seconds": 0.2}, {"step_seconds": 0.4}],
        "not inspected": [{"step_seconds": 0.1}],
    }
    assert (
        list(inspected.report(found))[-1]
        == "| step_seconds | 0.300 | 0.200 | 0.400 | 0.100 | 0.100 | 0.100 |"
    )


def test_starved_updates_are_what_two_gpus_of_a_host_differ_by() -> None:
    grid = RUN.parent / "2026-11-23-bert_large-2xh200"
    lines = list(paired.report(paired.pairs(grid, grid / "searched")))
    assert lines[0] == "82 configurations in both: 82 peaks allocated are equal to the byte"
    assert (
        "steps differ by 1.7% (at most 10.9%), without the updates by 0.9% (at most 2.6%)"
        in lines[8]
    )
    assert (
        lines[10]
        == "  438 and 476 ms a step, 367 and 370 ms without: batch 128×1 · bf16 · adafactor"
    )
    before = list(paired.report(paired.pairs(RUN, grid)))
    assert before[0] == "280 configurations in both: 280 peaks allocated are equal to the byte"
    assert len(before) == 8, "older tables do not tell of updates"


def test_speeds_measured_again_on_one_gpu() -> None:
    run = RUN.parent / "2026-11-23-frontier_search-2xh200"
    lines = list(paired.report(paired.pairs(run, run / "grid")))
    assert lines[0] == "92 configurations in both: 92 peaks allocated are equal to the byte"
    assert lines[3] == (
        "of 19 whose speed is the GPU's own, 8 differ by more than both intervals;"
        " steps of all differ by 0.7% (at most 5.5%); the most:"
    )
    assert (
        lines[4]
        == "  110 and 116 ms a step, 1980 and 1976 MHz: batch 32×1 · bf16 · adamw_torch_fused"
    )


def test_the_usual_spread_is_found_in_trials_that_were_drawn_with_it() -> None:
    draw = random.Random(0)

    def trial(mean: float) -> list[float]:
        deviation = (
            min(0.008, 0.004 / mean) / draw.gammavariate(0.75, 1 / 0.75) ** 0.5
        )  # 1.5 degrees of freedom
        return [mean * draw.gauss(1.0, deviation) for _ in range(5)]

    found = spread.fit([trial(0.1 * 1.005**place) for place in range(1000)])
    assert found == pytest.approx((1.5, 0.008, 0.004), rel=0.15)


def test_steps_spread_as_the_stopping_rule_takes_them_to() -> None:
    found = spread.fit(list(spread.trials(spread.RUNS)))
    assert found == pytest.approx((1.0, USUAL_SPREAD, USUAL_SECONDS), rel=0.15)
