"""Comparing runs: chance alone raises no alarm, a planted slowdown and a planted divergence do, unlike runs refuse."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.record import Outcome, TrialRecord
from orchestrator import compare as verb
from orchestrator.results import run as names
from orchestrator.results.comparison import Comparison, compare, student_quantile
from orchestrator.results.comparison_text import markdown, render
from orchestrator.results.measured import MeasuredRun, load
from orchestrator.results.table import losses_of, read, write
from tests.unit.records import H200, make_record, write_run

RECORDED = Path(__file__).parents[2] / "docs" / "results" / "2026-11-20-bert_large-7xh200-part"
Row = dict[str, Any]


@pytest.fixture(scope="module")
def recorded() -> tuple[pa.Table, dict[str, list[float]]]:
    """The recorded run's table and losses."""
    return read(RECORDED / names.TRIALS), losses_of(RECORDED)


def drawn_again(
    folder: Path,
    recorded: tuple[pa.Table, dict[str, list[float]]],
    seed: int,
    *,
    speed: Callable[[Row], float] = lambda row: 1.0,
    loss: Callable[[Row, int], float] = lambda row, step: 1.0,
) -> MeasuredRun:
    """The recorded run as it might have been: each speed drawn from the interval that was measured of it."""
    rng = random.Random(seed)
    table, losses = recorded
    rows = table.to_pylist()
    for row in rows:
        if row["samples_per_second"] is not None:
            # Half a 95 % interval is about two standard deviations; the other run's error was another draw, too.
            noise = math.exp(rng.gauss(0, row["samples_per_second_error"] / 2))
            row["samples_per_second"] *= noise * speed(row)
            row["samples_per_second_error"] *= math.exp(rng.gauss(0, 0.2))
    folder.mkdir()
    write(pa.Table.from_pylist(rows, schema=table.schema), folder / names.TRIALS)
    steps = [
        {"trial_id": row["trial_id"], "loss": value * loss(row, step)}
        for row in rows
        for step, value in enumerate(losses.get(row["trial_id"], ()))
    ]
    write(pa.Table.from_pylist(steps), folder / names.STEPS)
    return load(folder)


def test_chance_alone_raises_no_alarm_over_twenty_pairs(
    tmp_path: Path, recorded: tuple[pa.Table, dict[str, list[float]]]
) -> None:
    for pair in range(20):
        before, after = (drawn_again(tmp_path / f"{pair}{n}", recorded, seed=2 * pair + n) for n in (0, 1))
        found = compare(before, after)
        assert found.matched == 179
        assert not found.changes
        assert not found.fails(0.0)


def is_paced_by_gpu(row: Row) -> bool:
    return not any(text.startswith(("host-bound", "unstable")) for text in row["warnings"])


@pytest.mark.parametrize("seed", range(3))
def test_three_per_cent_slower_on_the_rows_that_the_gpu_paces_is_found(
    seed: int, tmp_path: Path, recorded: tuple[pa.Table, dict[str, list[float]]]
) -> None:
    before = drawn_again(tmp_path / "a", recorded, seed=100 + seed)
    after = drawn_again(
        tmp_path / "b", recorded, seed=200 + seed, speed=lambda row: 0.97 if is_paced_by_gpu(row) else 1.0
    )
    found = compare(before, after)
    steady = sum(row["outcome"] == "ok" and is_paced_by_gpu(row) for row in recorded[0].to_pylist())
    assert {change.kind for change in found.changes} == {"slower"}
    assert len(found.changes) > steady / 2
    assert found.shift is not None
    assert found.shift.is_real
    assert found.shift.low < 0.97 < found.shift.high
    assert found.fails(0.02)
    assert not found.fails(0.06)


@pytest.mark.parametrize(
    "loss", [lambda step: 1.1, lambda step: 1.03**step], ids=["by a tenth from the start", "growing step by step"]
)
def test_a_divergence_of_one_configurations_loss_is_found(
    loss: Callable[[int], float], tmp_path: Path, recorded: tuple[pa.Table, dict[str, list[float]]]
) -> None:
    victim = next(row for row in recorded[0].to_pylist() if row["outcome"] == "ok" and row["precision"] == "bf16")
    before = drawn_again(tmp_path / "a", recorded, seed=300)
    after = drawn_again(
        tmp_path / "b", recorded, 301, loss=lambda row, step: loss(step) if row["trial_id"] == victim["trial_id"] else 1
    )
    (change,) = compare(before, after).changes
    assert change.kind == "trains differently"
    assert compare(before, after).fails(1.0)


@pytest.mark.parametrize(
    ("probability", "freedom", "quantile"), [(0.975, 9, 2.262), (0.975, 30, 2.042), (0.9999, 9, 6.010)]
)
def test_students_quantiles_are_those_of_the_tables(probability: float, freedom: int, quantile: float) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(quantile, rel=0.005)


def two_runs(folder: Path, before: Sequence[TrialRecord], after: Sequence[TrialRecord], **run: Any) -> list[str]:
    """Run folders as the verb's arguments."""
    write_run(folder / "a", list(before))
    write_run(folder / "b", list(after), **run)
    return [str(folder / "a"), str(folder / "b")]


def steady(records: Sequence[TrialRecord], **figures: float) -> list[TrialRecord]:
    """Records whose speed is known to 0.2 %, their figures multiplied."""
    error = {"samples_per_second_error": 0.002}
    return [
        replace(r, measurements={**r.measurements, **error, **{k: r.measurements[k] * v for k, v in figures.items()}})
        for r in records
    ]


def test_every_kind_of_change_has_its_name_and_its_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = steady([make_record(micro_batch=2**n, speed=100.0 * (n + 1)) for n in range(6)])
    failed = replace(plain[5], outcome=Outcome.OUT_OF_MEMORY, reason="CUDA out of memory", measurements={}, steps={})
    after = [
        *steady(plain[:1], samples_per_second=0.9),
        *steady(plain[1:2], samples_per_second=1.2),
        *steady(plain[2:3], peak_allocated_bytes=1.5),
        *steady(plain[3:4], peak_allocated_bytes=0.5),
        plain[4],
        failed,
    ]
    runs = two_runs(tmp_path, plain, [replace(r, environment={**H200, "torch": "2.14.0"}) for r in after])
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
    assert {c["kind"] for c in json.loads(capsys.readouterr().out)["changes"]} >= {"broken", "slower"}


def test_tolerance_decides_what_fails(tmp_path: Path) -> None:
    plain = steady([make_record(micro_batch=2**n) for n in range(3)])
    runs = two_runs(tmp_path, plain, steady(plain, samples_per_second=0.95))
    assert [verb.main([*runs, "--fail-over", share]) for share in ("3%", "0.04", "10%")] == [1, 1, 0]
    with pytest.raises(SystemExit, match="2"):
        verb.main([*runs, "--fail-over", "three"])
    assert verb.main([runs[0], str(tmp_path / "nowhere")]) == 2


@pytest.mark.parametrize(
    ("environment", "config"),
    [({**H200, "gpu_model": "NVIDIA A100"}, {}), (H200, {"model": {"architecture": "llama"}})],
    ids=["another GPU", "another model"],
)
def test_unlike_runs_are_refused_unless_told(
    environment: Mapping[str, Any], config: Mapping[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = steady([make_record()])
    runs = two_runs(tmp_path, plain, [replace(r, environment=environment) for r in plain], config=config)
    assert verb.main(runs) == 3
    assert "too unlike" in capsys.readouterr().err
    assert verb.main([*runs, "--unlike"]) == 0


def test_what_is_hardly_known_is_not_judged(tmp_path: Path) -> None:
    vague = [replace(r, measurements={**r.measurements, "samples_per_second_error": 0.6}) for r in [make_record()]]
    two_runs(tmp_path, vague, [replace(r, measurements={**r.measurements, "samples_per_second": 900.0}) for r in vague])
    found = compare(load(tmp_path / "a"), load(tmp_path / "b"))
    assert (found.matched, found.unsteady, found.changes) == (1, 1, ())


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
