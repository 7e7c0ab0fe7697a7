"""Comparisons as text and as Markdown."""

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.record import Outcome, TrialRecord
from orchestrator.analysis.comparison.two_runs import compare
from orchestrator.analysis.dataset import Dataset, load_dataset
from orchestrator.reporting.verbs.comparison import markdown, render, to_json
from tests.support.golden import assert_golden
from tests.support.records import H200, make_record, steady, with_losses, write_run


def two_runs(
    folder: Path, before: list[TrialRecord], after: list[TrialRecord]
) -> tuple[Dataset, Dataset]:
    runs = {"a": before, "b": after}
    first, second = (
        load_dataset(write_run(folder / name, records)) for name, records in runs.items()
    )
    return first, second


@pytest.fixture
def changed(tmp_path: Path) -> tuple[Dataset, Dataset]:
    """Two runs in which every kind of change but one to losses occurs."""
    plain = [make_record(micro_batch=2**n, speed=0.1 * (n + 1)) for n in range(7)]
    failed = {"outcome": Outcome.OUT_OF_MEMORY, "measurements": {}, "steps": {}}
    before = [steady(record) for record in plain[:6]]
    before.append(replace(plain[6], reason="too large", **failed))
    after = [
        steady(plain[0], samples_per_second=0.9),
        steady(plain[1], samples_per_second=1.2),
        steady(plain[2], peak_allocated_bytes=1.5),
        steady(plain[3], peak_allocated_bytes=0.5),
        steady(plain[4]),
        replace(plain[5], reason="CUDA out of memory", **failed),
        steady(plain[6]),
    ]
    environment = {**H200, "torch": "2.14.0"}
    return two_runs(
        tmp_path, before, [replace(record, environment=environment) for record in after]
    )


def test_render_names_every_kind_of_change(changed):
    comparison = compare(*changed)
    assert comparison.fails(0.6), "a regression fails whatever the tolerance"
    assert_golden("comparison.txt", render(*changed, comparison))


def test_render_row_slower_than_all_others_says_what_all_others_did(tmp_path):
    plain = [make_record(micro_batch=2**n, speed=0.1) for n in range(6)]
    faster = [steady(own, samples_per_second=1.015 if n else 1.001) for n, own in enumerate(plain)]
    runs = two_runs(tmp_path, [steady(own) for own in plain], faster)
    assert "samples/s (+0.1 %, all such rows +1.5 %, equal" in render(*runs, compare(*runs))


def test_render_setting_that_a_run_lacks_is_a_dash_and_no_number_of_steps_an_epoch(tmp_path):
    configs = [{"measure": {"steps": None}, "model": {"revision": None}}]
    configs.append({"measure": {"steps": 10}, "model": {"revision": "main"}})
    runs = [
        load_dataset(write_run(tmp_path / str(n), [make_record()], config=config))
        for n, config in enumerate(configs)
    ]
    text = render(*runs, compare(*runs))
    assert "differs: measure steps: epoch -> 10" in text
    assert "differs: model revision: – -> main" in text


def test_render_says_that_losses_changed(tmp_path):
    records = [
        with_losses(make_record(), losses)
        for losses in ([1.0] * 8, [3.0] * 8, [1.0] * 7 + [float("nan")])
    ]
    same, other = two_runs(tmp_path / "1", records[:1], records[1:2])
    assert "loss mismatch: batch 4×1: mean loss 3.00 times the earlier run's" in render(
        same, other, compare(same, other)
    )
    same, broken = two_runs(tmp_path / "2", records[:1], records[2:])
    assert "losses are no longer finite" in render(same, broken, compare(same, broken))


def test_markdown_folds_a_long_table_and_escapes_bars(tmp_path):
    plain = [make_record(micro_batch=2**n, speed=0.01, choice="a|b") for n in range(12)]
    runs = two_runs(
        tmp_path,
        [steady(record) for record in plain],
        [steady(record, samples_per_second=0.9) for record in plain],
    )
    comparison = compare(*runs)
    text = markdown(*runs, comparison)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert "<details><summary>12 changes</summary>" in text
    assert {line.replace("\\|", "").count("|") for line in rows} == {4}
    assert render(*runs, comparison).count("slower: ") == 12


def test_markdown_of_equal_runs_has_no_table(tmp_path):
    runs = two_runs(tmp_path, [make_record()], [make_record()])
    assert "No single configuration changed" in markdown(*runs, compare(*runs))
    assert to_json(*runs, compare(*runs))["changes"] == []
