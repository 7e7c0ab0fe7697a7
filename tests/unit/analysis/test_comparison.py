"""Comparing runs: chance raises no alarm; a planted slowdown and a planted divergence do."""

import copy
import functools
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs.flags import LOSS, Flag
from jobs.steady_state import mean_step_error, student_quantile
from orchestrator.analysis.comparison.two_runs import compare
from orchestrator.analysis.dataset import Dataset, build_dataset, dataset_of_records, load_dataset
from orchestrator.analysis.repeatability import Pace, pace_of
from orchestrator.storage.layout import STEPS
from orchestrator.storage.run_metadata import RunMetadata
from orchestrator.storage.run_reader import RunContents, read_run_folder
from tests.benchmarks.recorded.false_alarms import judge
from tests.support.recorded_runs import RECORDED
from tests.support.records import GPU_BOUND, H200, make_record

EARLIER = RECORDED / "2026-11-20-bert_large-7xh200-part"
LATER = RECORDED / "2026-11-21-bert_large-h200"
KNOWN_PACE = RECORDED / "2026-11-23-bert_large-2xh200"
"""The run says of each row whether the GPU sets its pace."""
Row = dict[str, Any]


@functools.cache
def recorded(folder: Path) -> tuple[RunContents, Mapping[str, Sequence[float]]]:
    """A recorded run, and each trial's counted step seconds."""
    seconds = defaultdict(list)
    for step in pq.read_table(folder / STEPS).to_pylist():
        if step["counted"]:
            seconds[step["trial_id"]].append(step["device_seconds"])
    return read_run_folder(folder), seconds


def resampled(
    folder: Path,
    seed: int,
    *,
    speed: Callable[[Row], float] = lambda row: 1.0,
    loss: Callable[[Row, int], float] = lambda row, step: 1.0,
) -> Dataset:
    """The run as chance might have had it: each trial's steps drawn again, with replacement."""
    run, seconds = recorded(folder)
    rng = random.Random(seed)
    rows = copy.deepcopy(run.trials.rows)
    losses = {}
    for row in rows:
        taken = seconds.get(row["trial_id"])
        if taken:
            drawn = rng.choices(taken, k=len(taken))
            row["samples_per_second"] *= fmean(taken) / fmean(drawn) * speed(row)
            row["samples_per_second_ci95"] = mean_step_error(drawn)
        own = run.losses.get(row["trial_id"], ())
        losses[row["trial_id"]] = [value * loss(row, step) for step, value in enumerate(own)]
    return build_dataset(replace(run.trials, rows=rows), losses)


@pytest.mark.parametrize(("folder", "matched"), [(EARLIER, 179), (LATER, 280)])
def test_compare_chance_alone_raises_no_alarm(folder, matched):
    for pair in range(3):
        comparison = compare(*(resampled(folder, seed) for seed in (2 * pair, 2 * pair + 1)))
        assert comparison.matched == matched
        assert comparison.losses_compared
        assert not comparison.changes
        assert not comparison.fails(0.0)


def test_compare_different_hosts_judges_only_gpu_bound_rows():
    before, after = load_dataset(EARLIER), load_dataset(LATER)
    comparison = compare(before, after)
    assert [difference.label for difference in comparison.differences] == [
        "measure warmup_steps",
        "host GPUs in use",
        "host cores per trial",
    ]
    assert (comparison.matched, comparison.losses_compared) == (179, False)
    assert not comparison.changes
    assert comparison.host_bound + comparison.other_hosts + comparison.unsteady == 179
    assert not comparison.fails(0.0)
    assert compare(before, after, different_hosts=True).other_hosts == 0


def slower(factor: float, *activations: str) -> Callable[[Row], float]:
    """GPU-bound rows are so many times as fast, or only those with these activations."""

    def speed(row: Row) -> float:
        is_meant = not activations or row["activations"] in activations
        return factor if is_meant and pace_of(row) is Pace.GPU else 1.0

    return speed


def test_compare_finds_three_percent_slower_gpu_bound_rows():
    slow = resampled(KNOWN_PACE, 2, speed=slower(0.97))
    comparison = compare(resampled(KNOWN_PACE, 1), slow)
    assert comparison.shift.is_real
    assert comparison.shift.low < 0.97 < comparison.shift.high
    assert comparison.fails(0.02)
    assert not comparison.fails(0.06)


def test_compare_names_the_technique_whose_rows_became_slower():
    slow = resampled(KNOWN_PACE, 2, speed=slower(0.95, "checkpoint"))
    shifts = compare(resampled(KNOWN_PACE, 1), slow).technique_shifts
    named = {(own.axis, own.value): own.ratio for own in shifts}
    assert named["activations", "checkpoint"] == pytest.approx(0.95, abs=0.01)


def test_compare_equal_runs_of_other_trials_shows_no_change_of_speed():
    folders = [KNOWN_PACE, KNOWN_PACE / "searched", KNOWN_PACE / "cut"]
    verdicts = list(judge(folders, slower=0.03, alone=0.05))
    assert [own.alarms for own in verdicts] == [0] * 3
    assert [own.found for own in verdicts] == [True] * 3
    # Whatever all rows of a run share by chance does not hide a change of one of them.
    assert sum(own.found_alone for own in verdicts) > 4


@pytest.mark.parametrize(
    "factor", [lambda step: 1.1, lambda step: 1.03**step], ids=["constant", "growing"]
)
def test_compare_finds_one_configuration_with_other_losses(factor):
    rows = recorded(EARLIER)[0].trials.rows
    victim = next(row for row in rows if row["outcome"] == "ok" and row["precision"] == "bf16")

    def diverging(row: Row, step: int) -> float:
        return factor(step) if row["trial_id"] == victim["trial_id"] else 1.0

    comparison = compare(resampled(EARLIER, 300), resampled(EARLIER, 301, loss=diverging))
    (change,) = comparison.changes
    assert change.kind == "loss mismatch"
    assert comparison.fails(1.0)


@pytest.mark.parametrize(
    ("probability", "degrees", "quantile"),
    [(0.975, 9, 2.262), (0.975, 30, 2.042), (0.9999, 9, 6.010)],
)
def test_student_quantile_agrees_with_printed_tables(probability, degrees, quantile):
    assert student_quantile(probability, degrees) == pytest.approx(quantile, rel=0.001)


@pytest.mark.parametrize(
    ("pace", "ratio", "left_out", "expected"),
    [
        ({"host_bound_share": 0.9, "samples_per_second_ci95": 0.001}, 0.5, "host_bound", []),
        # Half the interval is 60 %, so the speed is hardly known.
        ({"samples_per_second_ci95": 0.6}, 9.0, "unsteady", []),
        # On a coarse clock an interval can be exactly zero.
        ({**GPU_BOUND, "samples_per_second_ci95": 0.0}, 0.9, "", ["slower"]),
        (GPU_BOUND, 0.93, "", ["slower"]),
        ({**GPU_BOUND, "launch_bound_update_share": 0.3}, 0.93, "", []),
        # A small model on two busy cores had rows 4.9 times as fast in one of two equal runs.
        (GPU_BOUND, 5.0, "without_gpu", []),
        (GPU_BOUND, 0.2, "without_gpu", []),
    ],
)
def test_compare_judges_speeds_that_are_known_and_not_the_hosts(pace, ratio, left_out, expected):
    # Flags of the losses are no reason to call a speed unsteady.
    flags = [Flag(kind, 4.0) for kind in LOSS]
    environment = {"cpu_model": "AMD EPYC"} if left_out == "without_gpu" else H200
    before, after = (
        make_record(speed=speed, flags=flags, measurements=pace, environment=environment)
        for speed in (0.1, 0.1 * ratio)
    )
    run = RunMetadata()
    comparison = compare(dataset_of_records([before], run), dataset_of_records([after], run))
    assert [change.kind for change in comparison.changes] == expected
    names = ("host_bound", "unsteady", "without_gpu")
    counts = {name: getattr(comparison, name) for name in names}
    assert counts == {**dict.fromkeys(counts, 0), **({left_out: 1} if left_out else {})}
