"""What report.html and frontier.png have in common."""

from __future__ import annotations

from pathlib import Path

from orchestrator.analysis.dataset import load_dataset
from orchestrator.reporting.plots.encoding import shown_budgets, values_of
from orchestrator.units import GIB
from tests.support.records import make_grid, make_record, write_run


def test_shown_budgets_are_those_of_the_run_wherever_they_lie(tmp_path: Path) -> None:
    named = [GIB // 2, 900 * GIB]
    dataset = load_dataset(write_run(tmp_path / "named", make_grid(), budgets=named))
    assert shown_budgets(dataset, dataset.main) == named
    unnamed = load_dataset(write_run(tmp_path / "unnamed", make_grid()))
    assert shown_budgets(unnamed, unnamed.main)


def test_values_of_an_axis_come_in_their_techniques_order(tmp_path: Path) -> None:
    records = []
    for number, precision in enumerate(("bf16", "fp32", "mine", "tf32")):
        records.append(make_record(precision=precision, micro_batch=2 ** (4 - number)))
    dataset = load_dataset(write_run(tmp_path, records))
    configurations = dataset.main.configurations
    assert values_of("precision", configurations) == ["fp32", "tf32", "bf16", "mine"]
    assert values_of("micro_batch", configurations) == [2, 4, 8, 16]
