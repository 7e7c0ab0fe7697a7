"""Comparing runs: chance alone raises no alarm, a planted slowdown and a planted divergence do, unlike runs refuse."""

from __future__ import annotations

import functools
import json
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.record import Outcome, TrialRecord
from jobs.steady_state import mean_step_error
from orchestrator import compare as verb
from orchestrator.analysis.comparison import Comparison, compare, student_quantile
from orchestrator.api import MeasuredRun, load
from orchestrator.reporting.comparison import markdown, render
from orchestrator.storage import run_metadata as names
from orchestrator.storage.tables.parquet import losses_of, read, write
from tests.support.records import H200, make_record, write_run

RESULTS = Path(__file__).parents[3] / "docs" / "results"
EARLIER, LATER = (
    RESULTS / "2026-11-20-bert_large-7xh200-part",
    RESULTS / "2026-11-21-bert_large-h200",
)
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """A recorded run: its table, and of each trial the seconds of its counted steps and all its losses."""

    table: pa.Table
    rows: Sequence[Row]
    seconds: Mapping[str, Sequence[float]]
    losses: Mapping[str, Sequence[float]]


@functools.cache
def recorded(folder: Path) -> Recorded:
    """A folder of docs/results."""
    table, seconds = read(folder / names.TRIALS), defaultdict(list)
    for step in pq.read_table(folder / names.STEPS).to_pylist():
        if step["counted"]:
            seconds[step["trial_id"]].append(step["device_seconds"])
    return Recorded(table=table, rows=table.to_pylist(), seconds=seconds, losses=losses_of(folder))


def drawn_again(
    folder: Path,
    run: Recorded,
    seed: int,
    *,
    speed: Callable[[Row], float] = lambda row: 1.0,
    loss: Callable[[Row, int], float] = lambda row, step: 1.0,
) -> MeasuredRun:
    """The recorded run as it might have been: each trial's steps drawn again, with replacement, from those it took."""
    rng = random.Random(seed)
    rows = [dict(row) for row in run.rows]
    for row in rows:
        if taken := run.seconds.get(row["trial_id"]):
            drawn = rng.choices(taken, k=len(taken))
            row["samples_per_second"] *= fmean(taken) / fmean(drawn) * speed(row)
            row["samples_per_second_ci95"] = mean_step_error(drawn)
    folder.mkdir()
    write(pa.Table.from_pylist(rows, schema=run.table.schema), folder / names.TRIALS)
    steps = [
        {"trial_id": row["trial_id"], "loss": value * loss(row, step)}
        for row in rows
        for step, value in enumerate(run.losses.get(row["trial_id"], ()))
    ]
    write(pa.Table.from_pylist(steps), folder / names.STEPS)
    return load(folder)


@pytest.mark.parametrize(("folder", "matched"), [(EARLIER, 179), (LATER, 280)])
def test_chance_alone_raises_no_alarm_over_twenty_pairs(
    folder: Path, matched: int, tmp_path: Path
) -> None:
    for pair in range(10):
        before, after = (
            drawn_again(tmp_path / f"{pair}{n}", recorded(folder), seed=2 * pair + n)
            for n in (0, 1)
        )
        found = compare(before, after)
        assert found.matched == matched
        assert found.losses_compared
        assert not found.changes
        assert not found.fails(0.0)


def test_two_days_on_unlike_hosts_differ_only_in_the_speed_of_what_the_gpu_paced() -> None:
    found = compare(load(EARLIER), load(LATER))
    assert [what for what, _, _ in found.differences] == [
        "measure warmup_steps",
        "host GPUs at work",
        "host cores a trial",
    ]
    assert (found.matched, found.losses_compared) == (179, False)
    assert {change.kind for change in found.changes} == {"faster"}
    assert found.other_hosts > 100
    assert not found.fails(0.0)
    assert len(compare(load(EARLIER), load(LATER), unlike=True).changes) > len(found.changes)


def is_paced_by_gpu(row: Row) -> bool:
    return not any(text.startswith(("host-bound", "unstable")) for text in row["warnings"])


@pytest.mark.parametrize("seed", range(3))
def test_three_per_cent_slower_on_the_rows_that_the_gpu_paces_is_found(
    seed: int, tmp_path: Path
) -> None:
    run = recorded(EARLIER)
    before = drawn_again(tmp_path / "a", run, seed=100 + seed)
    after = drawn_again(
        tmp_path / "b",
        run,
        seed=200 + seed,
        speed=lambda row: 0.97 if is_paced_by_gpu(row) else 1.0,
    )
    found = compare(before, after)
    steady = sum(row["outcome"] == "ok" and is_paced_by_gpu(row) for row in run.rows)
    assert {change.kind for change in found.changes} == {"slower"}
    assert len(found.changes) > steady / 2
    assert found.shift is not None
    assert found.shift.is_real
    assert found.shift.low < 0.97 < found.shift.high
    assert found.fails(0.02)
    assert not found.fails(0.06)


@pytest.mark.parametrize(
    "loss",
    [lambda step: 1.1, lambda step: 1.03**step],
    ids=["by a tenth from the start", "growing step by step"],
)
def test_a_divergence_of_one_configurations_loss_is_found(
    loss: Callable[[int], float], tmp_path: Path
) -> None:
    run = recorded(EARLIER)
    victim = next(row for row in run.rows if row["outcome"] == "ok" and row["precision"] == "bf16")
    before = drawn_again(tmp_path / "a", run, seed=300)
    after = drawn_again(
        tmp_path / "b",
        run,
        301,
        loss=lambda row, step: loss(step) if row["trial_id"] == victim["trial_id"] else 1,
    )
    (change,) = compare(before, after).changes
    assert change.kind == "trains differently"
    assert compare(before, after).fails(1.0)


@pytest.mark.parametrize(
    ("probability", "freedom", "quantile"),
    [(0.975, 9, 2.262), (0.975, 30, 2.042), (0.9999, 9, 6.010)],
)
def test_students_quantiles_are_those_of_the_tables(
    probability: float, freedom: int, quantile: float
) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(quantile, rel=0.005)


def two_runs(
    folder: Path, before: Sequence[TrialRecord], after: Sequence[TrialRecord], **run: Any
) -> list[str]:
    """Run folders as the verb's arguments."""
    write_run(folder / "a", list(before))
    write_run(folder / "b", list(after), **run)
    return [str(folder / "a"), str(folder / "b")]


def steady(records: Sequence[TrialRecord], **figures: float) -> list[TrialRecord]:
    """Records whose speed is known to 0.2 %, their figures multiplied."""
    error = {"samples_per_second_ci95": 0.002}
    return [
        replace(
            r,
            measurements={
                **r.measurements,
                **error,
                **{k: r.measurements[k] * v for k, v in figures.items()},
            },
        )
        for r in records
    ]


def test_every_kind_of_change_has_its_name_and_its_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = steady([make_record(micro_batch=2**n, speed=100.0 * (n + 1)) for n in range(6)])
    failed = replace(
        plain[5],
        outcome=Outcome.OUT_OF_MEMORY,
        reason="CUDA out of memory",
        measurements={},
        steps={},
    )
    after = [
        *steady(plain[:1], samples_per_second=0.9),
        *steady(plain[1:2], samples_per_second=1.2),
        *steady(plain[2:3], peak_allocated_bytes=1.5),
        *steady(plain[3:4], peak_allocated_bytes=0.5),
        plain[4],
        failed,
    ]
    runs = two_runs(
        tmp_path, plain, [replace(r, environment={**H200, "torch": "2.14.0"}) for r in after]
    )
    assert verb.main([*runs]) == 0
    text = capsys.readouterr().out
    assert [line.partition(":")[0] for line in text.splitlines()[2:]] == [
        "broken",
        "slower",
        "fatter",
        "faster",
        "leaner",
    ]
    assert "torch: 2.13.0 -> 2.14.0" in text
    assert verb.main([*runs, "--fail-over", "60%"]) == 1  # what broke fails whatever the tolerance
    assert verb.main([*reversed(runs), "--fail-over", "3%"]) == 1
    assert "mended" in capsys.readouterr().out
    assert verb.main([*runs, "--json"]) == 0
    assert {c["kind"] for c in json.loads(capsys.readouterr().out)["changes"]} >= {
        "broken",
        "slower",
    }


def test_tolerance_decides_what_fails(tmp_path: Path) -> None:
    plain = steady([make_record(micro_batch=2**n) for n in range(3)])
    runs = two_runs(tmp_path, plain, steady(plain, samples_per_second=0.95))
    assert [verb.main([*runs, "--fail-over", share]) for share in ("3%", "0.04", "10%")] == [
        1,
        1,
        0,
    ]
    with pytest.raises(SystemExit, match="2"):
        verb.main([*runs, "--fail-over", "three"])
    assert verb.main([runs[0], str(tmp_path / "nowhere")]) == 2


@pytest.mark.parametrize(
    ("environment", "config"),
    [({**H200, "gpu_model": "NVIDIA A100"}, {}), (H200, {"model": {"architecture": "llama"}})],
    ids=["another GPU", "another model"],
)
def test_unlike_runs_are_refused_unless_told(
    environment: Mapping[str, Any],
    config: Mapping[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain = steady([make_record()])
    runs = two_runs(
        tmp_path, plain, [replace(r, environment=environment) for r in plain], config=config
    )
    assert verb.main(runs) == 3
    assert "too unlike" in capsys.readouterr().err
    assert verb.main([*runs, "--unlike"]) == 0


def test_what_is_hardly_known_is_not_judged(tmp_path: Path) -> None:
    vague = [
        replace(r, measurements={**r.measurements, "samples_per_second_ci95": 0.6})
        for r in [make_record()]
    ]
    two_runs(
        tmp_path,
        vague,
        [replace(r, measurements={**r.measurements, "samples_per_second": 900.0}) for r in vague],
    )
    found = compare(load(tmp_path / "a"), load(tmp_path / "b"))
    assert (found.matched, found.unsteady, found.changes) == (1, 1, ())


@pytest.mark.parametrize(
    ("warnings", "kinds"), [([], ["slower"]), (["partly host-bound: a third of the time"], [])]
)
def test_a_speed_that_a_host_had_a_part_in_varies_with_it(
    warnings: list[str], kinds: list[str], tmp_path: Path
) -> None:
    before, after = (
        [
            replace(
                r,
                measurements={**r.measurements, "samples_per_second": speed, "warnings": warnings},
            )
            for r in rows
        ]
        for rows, speed in ((steady([make_record()]), 100.0), (steady([make_record()]), 93.0))
    )
    two_runs(tmp_path, before, after)
    assert [
        change.kind for change in compare(load(tmp_path / "a"), load(tmp_path / "b")).changes
    ] == kinds


def test_markdown_folds_what_is_long_and_breaks_no_table(tmp_path: Path) -> None:
    plain = steady([make_record(micro_batch=2**n, choice="a|b") for n in range(12)])
    two_runs(tmp_path, plain, steady(plain, samples_per_second=0.9))
    before, after = load(tmp_path / "a"), load(tmp_path / "b")
    found: Comparison = compare(before, after)
    text = markdown(before, after, found)
    assert "<details><summary>12 changes</summary>" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {4}
    assert render(before, after, found).count("slower: ") == 12
