"""Throughput by micro-batch: which lines there are, and what is on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jobs.record import TrialRecord
from orchestrator.analysis.dataset import load_dataset
from orchestrator.reporting.html.chart_data import MAX_LINES, batch_lines
from tests.support.records import make_record, write_run


def lines(folder: Path, records: list[TrialRecord]) -> list[dict[str, Any]]:
    dataset = load_dataset(write_run(folder, records))
    configurations = dataset.main.configurations
    index_of = {own.trial_ids[0]: index for index, own in enumerate(configurations)}
    return batch_lines(dataset, dataset.main, index_of)


def test_batch_lines_rise_by_micro_batch_and_name_the_baseline(tmp_path: Path) -> None:
    records = []
    for size in (4, 1, 2):
        for precision, factor in (("fp32", 1.0), ("bf16", 3.0)):
            records.append(
                make_record(micro_batch=size, precision=precision, speed=10.0 * size * factor)
            )
    fastest, baseline = lines(tmp_path, records)
    assert fastest["name"] == "bf16"
    assert fastest["sizes"] == [1, 2, 4]
    assert baseline["name"] == "fp32 (baseline)"
    assert (baseline["best"], baseline["single"]) == (1, 1)


def test_batch_lines_need_two_micro_batches(tmp_path: Path) -> None:
    assert lines(tmp_path, [make_record(micro_batch=4)]) == []


def test_batch_lines_take_the_fastest_split_of_a_micro_batch(tmp_path: Path) -> None:
    records = [
        make_record(micro_batch=2, accumulation=1, speed=10.0),
        make_record(micro_batch=2, accumulation=4, speed=15.0),
        make_record(micro_batch=4, accumulation=1, speed=20.0),
    ]
    (line,) = lines(tmp_path, records)
    assert line["sizes"] == [2, 4]
    assert line["speed"] == 20.0


def test_batch_lines_are_few_and_hold_the_baseline(tmp_path: Path) -> None:
    records = []
    for number in range(20):
        for size in (1, 2):
            name = "adamw_torch_fused" if number == 0 else f"optimizer_{number}"
            speed = 10.0 * size + number
            records.append(make_record(micro_batch=size, optimizer=name, speed=speed))
    best = [line for line in lines(tmp_path, records) if line["best"]]
    assert len(best) == MAX_LINES + 1
    assert any(line["name"].endswith("(baseline)") for line in best)
