"""Batching in whole trials on the CPU, on one distribution of lengths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.record import Outcome, TrialRecord
from jobs.spec import DataSpec, ModelSpec, RowLengthDistribution, SyntheticData, TrialSpec
from jobs.techniques import AXES
from tests.conftest import build_tiny_spec
from tests.support.one_trial import measured
from tests.support.tiny_decoders import MODEL

LENGTHS = RowLengthDistribution(distribution="lognormal", mean=16)


def _spec(batching: str, model: ModelSpec = MODEL) -> TrialSpec:
    return replace(
        build_tiny_spec({"batching": batching, "micro_batch": 4}, steps=3),
        model=model,
        data=DataSpec(synthetic=SyntheticData(sequence_length=64, samples=80, lengths=LENGTHS)),
    )


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrialRecord]:
    """One trial of each way to batch."""
    folder = tmp_path_factory.mktemp("scratch")
    return {name: measured(_spec(name), folder) for name in AXES["batching"].variants}


def test_run_padding_free_trains_no_padding(records: dict[str, TrialRecord]) -> None:
    values = {name: record.measurements for name, record in records.items()}
    assert values["pad"]["real_tokens_per_second"] < values["pad"]["tokens_per_second"]
    for batching in ("padding_free", "packed"):
        row = values[batching]
        assert row["real_tokens_per_second"] == row["tokens_per_second"]
    assert values["padding_free"]["padding_share"] == 0.0
    assert values["group_by_length"]["padding_share"] < values["pad"]["padding_share"]


def test_run_counts_rows_and_blocks(records: dict[str, TrialRecord]) -> None:
    for batching, record in records.items():
        row = record.measurements
        samples = row["samples_per_second"] * row["counted_seconds"]
        if batching == "packed_whole_rows":
            # A batch has four blocks, and a sample is a row: most blocks hold several.
            assert samples > 8 * row["steps_counted"]
        else:
            assert samples == pytest.approx(4 * row["steps_counted"]), batching


def test_run_measures_memory_on_the_worst_batch(records: dict[str, TrialRecord]) -> None:
    for batching in ("pad", "group_by_length", "padding_free"):
        row = records[batching].measurements
        assert row["peak_allocated_bytes"] > row["typical_peak_allocated_bytes"]
    # Every packed batch is the worst one.
    assert "typical_peak_allocated_bytes" not in records["packed"].measurements


@pytest.mark.parametrize("batching", ["padding_free", "packed"])
def test_run_of_a_model_whose_rows_attend_to_each_other_is_refused(
    tmp_path: Path, batching: str
) -> None:
    # OPT computes its positions and masks without position_ids.
    spec = _spec(batching, replace(MODEL, architecture="opt"))
    record = measured(spec, tmp_path, Outcome.UNSUPPORTED)
    assert record.rule == "rows_stay_separate"
    assert "attend to each other" in record.reason
