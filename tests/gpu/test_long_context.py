"""Long and unequal rows on a GPU: peaks of bare_decoder.py, losses of padded rows."""

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.isolation.slot import Slot
from jobs.record import TrialRecord
from tests.gpu.bare_decoder import CONFIG, LONG, STEPS, unequal_rows
from tests.gpu.shared import bare_figures, gpu_marks, measured, planned

MICRO_BATCH = 2
LLAMA = {"task": "causal-lm", "architecture": "llama", "config": CONFIG}
RAGGED = {"sequence_length": 2048, "samples": 64, "lengths": {"mean": 700}}

pytestmark = gpu_marks()


def trained(
    slot: Slot, folder: Path, choices: Mapping[str, Any], data: Any, **measure: Any
) -> TrialRecord:
    choices = {"precision": "bf16", "micro_batch": MICRO_BATCH, **choices}
    record = measured(slot, planned(folder, LLAMA, choices, data, steps=STEPS - 2, **measure))
    names = ("peak_allocated_bytes", "device_peak_bytes", "samples_per_second")
    tokens = ("real_tokens_per_second", "padding_share", "attention_kernel")
    print(choices, {name: record.measurements.get(name) for name in (*names, *tokens)})
    return record


@pytest.mark.parametrize("activations", ["keep", "checkpoint"])
def test_peak_of_a_long_sequence_equals_the_bare_script(activations, slot, tmp_path):
    data = (512, STEPS * MICRO_BATCH)
    choices = {"sequence_length": LONG, "activations": activations}
    row = trained(slot, tmp_path, choices, data).measurements
    case = "long" if activations == "keep" else "long_checkpoint"
    bare = bare_figures("bare_decoder", case)
    assert row["peak_allocated_bytes"] == bare["peak_allocated_bytes"]


def test_peak_of_padding_free_rows_equals_the_bare_script(slot, tmp_path):
    lines = [json.dumps({"input_ids": row}) + "\n" for row in unequal_rows()]
    (tmp_path / "rows.jsonl").write_text("".join(lines))
    data = {"file": {"path": "rows.jsonl"}}
    row = trained(slot, tmp_path, {"batching": "padding_free"}, data).measurements
    bare = bare_figures("bare_decoder", "padding_free")
    assert row["typical_peak_allocated_bytes"] == bare["peak_allocated_bytes"]
    # The longest rows together take more than random ones.
    assert row["peak_allocated_bytes"] > row["typical_peak_allocated_bytes"]


@pytest.mark.parametrize("attention", ["sdpa", "varlen"])
def test_losses_without_padding_are_those_of_padded_rows(attention, slot, tmp_path):
    data = {"synthetic": RAGGED}
    padded = trained(slot, tmp_path, {}, data).steps["loss"]
    choices = {"batching": "padding_free", "attention": attention}
    flat = trained(slot, tmp_path, choices, data)
    assert flat.measurements["padding_share"] == 0.0
    assert statistics.fmean(flat.steps["loss"]) == pytest.approx(statistics.fmean(padded), rel=0.01)


def test_packed_blocks_with_variable_length_attention_train(slot, tmp_path):
    choices = {"batching": "packed", "attention": "varlen"}
    row = trained(slot, tmp_path, choices, {"synthetic": RAGGED}).measurements
    assert row["real_tokens_per_second"] == row["tokens_per_second"]
    tokens = row["real_tokens_per_second"] * row["counted_seconds"]
    assert tokens == pytest.approx(row["steps_counted"] * MICRO_BATCH * 2048)


def test_upkeep_peaks_are_measured_and_change_nothing_else(slot, tmp_path):
    data = (2048, STEPS * MICRO_BATCH)
    plain = trained(slot, tmp_path, {}, data).measurements
    row = trained(slot, tmp_path, {}, data, evaluate_and_save=True).measurements
    assert row["peak_allocated_bytes"] == plain["peak_allocated_bytes"]
    for name in ("evaluate", "save"):
        print(name, row[f"peak_{name}_allocated_bytes"], row[f"{name}_seconds"])
        assert row[f"peak_{name}_allocated_bytes"] >= row["model_allocated_bytes"]
        assert row[f"peak_{name}_reserved_bytes"] >= row[f"peak_{name}_allocated_bytes"]
