"""Budgets on a real GPU: the picks fit under caps of their budgets' size, and what lies just above a line fails."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from orchestrator.analysis.summary import Summary

from jobs.isolation.slot import Slot
from jobs.node import nvml
from jobs.record import Outcome, TrialRecord
from orchestrator.analysis.pareto import Point
from orchestrator.reporting.publish import summarize_folder
from orchestrator.search.follow_ups import under_cap
from orchestrator.storage.run_folder import RunFolder

GIB = 2**30

CONFIG = """\
model:
  task: sequence-classification
  architecture: bert
  config: {hidden_size: 1024, num_hidden_layers: 24, num_attention_heads: 16, intermediate_size: 4096}
data:
  synthetic: {sequence_length: 512, samples: 1024}
axes:
  precision: [bf16]
  micro_batch: [8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52]
measure: {warmup_steps: 2, steps: 4, turns: 0, anatomy: none}
budgets: [12GiB, 14GiB, 16GiB, 18GiB, 20GiB, 22GiB, 24GiB, 26GiB, 28GiB, 30GiB]
"""

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not nvml.visible_uuids(), reason="needs a CUDA device"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep's folder: a line of micro-batches two GiB apart, and a budget in every gap."""
    made = tmp_path_factory.mktemp("budgets")
    (made / "budgets.yaml").write_text(CONFIG)
    command = [
        sys.executable,
        "-m",
        "orchestrator.sweep",
        str(made / "budgets.yaml"),
        "--output",
        str(made / "run"),
    ]
    printed = subprocess.run(
        command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True, check=True
    )
    print(printed.stdout)
    return made / "run"


@pytest.fixture(scope="module")
def summary(folder: Path) -> Summary:
    """What the run's report says."""
    return summarize_folder(folder)


@pytest.fixture(scope="module")
def records(folder: Path) -> dict[str, TrialRecord]:
    """The run's records by trial."""
    return RunFolder(folder).records()


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    """A slot for what no sweep would run: configurations that are known not to fit."""
    with Slot(cpus=os.cpu_count() or 1) as one:
        yield one


def test_ten_picks_were_seen_to_fit_their_budgets(
    summary: Summary, records: dict[str, TrialRecord]
) -> None:
    (cohort,) = summary.cohorts
    checks = [verdict.seen(verdict.best) for verdict in cohort.verdicts if verdict.best is not None]
    assert len(checks) == 10
    assert len({check.follows for check in checks if check is not None}) >= 5, (
        "too few picks differ"
    )
    for check in checks:
        assert check is not None
        assert check.fits, check
        capped, free = records[check.trial_id].measurements, records[check.follows].measurements
        outside = max(
            free["device_peak_bytes"] - free["peak_reserved_bytes"], capped["gpu_context_bytes"]
        )
        assert (
            capped["peak_reserved_bytes"]
            <= capped["allocator_limit_bytes"]
            <= check.budget_bytes - outside
        )
        assert capped["peak_allocated_bytes"] == free["peak_allocated_bytes"]


def needs_at_least(point: Point) -> int:
    """Bytes of context, libraries and tensors: what no flushing of the allocator's cache can save."""
    spared = point.row["peak_reserved_bytes"] - point.row["peak_allocated_bytes"]
    return int(point.memory_bytes - spared)


def test_ten_configurations_just_above_a_line_fail_under_it(
    summary: Summary, records: dict[str, TrialRecord], slot: Slot
) -> None:
    (cohort,) = summary.cohorts
    by_size = sorted(cohort.points, key=needs_at_least)
    failed = []
    for verdict in cohort.verdicts:
        above = next(point for point in by_size if needs_at_least(point) > verdict.budget_bytes)
        spec = under_cap(records[above.trial_ids[0]], verdict.budget_bytes)
        record = slot.run(spec, timeout_seconds=120.0)
        print(
            f"{verdict.budget_bytes / GIB:.0f} GiB: {summary.label(above)}, {above.memory_bytes / GIB:.2f} GiB without"
            f" a cap: {record.outcome.value} in {record.phase or 'no phase'}; {record.reason[:150]}"
        )
        assert record.outcome is Outcome.OUT_OF_MEMORY, f"{record.reason}\n{record.log}"
        assert record.reason.startswith(f"under a cap of {verdict.budget_bytes / GIB:.4g} GiB")
        failed.append(above)
    assert len(failed) == 10
    after = slot.run(records[failed[-1].trial_ids[0]].spec, timeout_seconds=120.0)
    assert after.outcome is Outcome.OK, "a cap outlived its trial"
