"""A trial of ragged data has its peak on the longest rows together, its speed on random batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.record import Outcome
from jobs.spec import DataSpec, TrialSpec
from jobs.trial.run import run
from tests.conftest import build_tiny_spec
from tests.support.json_rows import file_of
from tests.support.one_trial import measured

SHORT, LONG = 4, 16
"""Tokens of a row. One row in fifty is long, so that a dozen random batches may have none."""
RAGGED = [LONG if row % 50 == 49 else SHORT for row in range(200)]


def spec_of(folder: Path, lengths: list[int], **choices: Any) -> TrialSpec:
    """The tiny BERT on a file of rows with so many tokens."""
    rows = [{"input_ids": [7] * count, "labels": count % 2} for count in lengths]
    spec = build_tiny_spec(choices, steps=3)
    return replace(spec, data=DataSpec(file=file_of(rows, folder)))


@pytest.mark.parametrize("choices", [{"accumulation": 2}, {"loop": "accelerate"}])
def test_run_on_ragged_rows_peaks_on_the_longest_together(
    tmp_path: Path, choices: dict[str, Any]
) -> None:
    record = measured(spec_of(tmp_path, RAGGED, **choices), tmp_path)
    ragged = record.measurements
    longest = measured(spec_of(tmp_path, [LONG] * 100, **choices), tmp_path).measurements
    # The worst batch also holds a mask, which equally long rows do not need.
    assert ragged["peak_allocated_bytes"] == pytest.approx(
        longest["peak_allocated_bytes"], rel=0.02
    )
    assert ragged["peak_allocated_bytes"] > ragged["typical_peak_allocated_bytes"]
    assert ragged["longest_row_tokens"] == LONG
    assert ragged["mean_row_tokens"] == pytest.approx(sum(RAGGED) / len(RAGGED))
    assert 0.0 < ragged["padding_share"] < 0.2
    # The step on the longest rows does not count. A CPU has two steps of warm-up.
    assert ragged["steps_counted"] == 3
    assert len(record.steps["step_seconds"]) == len(record.steps["loss"]) == 5


def test_run_on_equally_long_rows_has_no_further_step(tmp_path: Path) -> None:
    phases: list[str] = []
    record = run(spec_of(tmp_path, [SHORT] * 100), phases.append, scratch=tmp_path)
    assert record.outcome is Outcome.OK
    assert "worst_batch" not in phases
    assert not {"typical_peak_allocated_bytes", "padding_share"} & record.measurements.keys()


def test_run_that_fails_on_the_longest_rows_says_so(tmp_path: Path) -> None:
    lengths = [SHORT] * 5000 + [LONG + 1]  # the model has as many positions as a long row has
    record = measured(spec_of(tmp_path, lengths), tmp_path, Outcome.FAILED)
    assert record.phase == "worst_batch"
    assert record.reason.startswith("with the longest rows of the data in one batch: ")
