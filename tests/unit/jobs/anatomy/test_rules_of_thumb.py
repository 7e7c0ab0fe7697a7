"""Published rules of thumb: where they apply, and whether they held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.anatomy import rules_of_thumb
from jobs.anatomy_record import Entry

ROW = {
    "parameters_total": 1000,
    "parameters_trainable": 1000,
    "parameter_dtypes": "float32",
    "autocast": "bf16",
    "optimizer_class": "torch.AdamW",
    "peak_allocated_bytes": 20_000,
}
PEAKS = {
    "weights": 4000,
    "autocast copies of weights": 2000,
    "gradients": 4000,
    "optimizer states": 8000,
}


def compared(peaks: Mapping[str, int], row: Mapping[str, Any]) -> dict[str, Entry]:
    return {entry.name: entry for entry in rules_of_thumb.memory_rules(peaks, row)}


def test_memory_rules_hold_for_textbook_mixed_precision() -> None:
    entries = compared(PEAKS, ROW)
    assert {name for name, entry in entries.items() if entry.held} == {
        "weights, fp32",
        "weights, mixed precision",
        "gradients",
        "optimizer states, AdamW",
        "all but activations, mixed precision with AdamW",
    }


def test_memory_rules_of_full_training_leave_adapters_out() -> None:
    peaks = {**PEAKS, "LoRA adapters": 200, "weights": 3800}
    entries = compared(peaks, {**ROW, "parameters_trainable": 50})
    assert not entries["optimizer states, AdamW"].held
    assert entries["weights, fp32"].value == 4000, "adapters are weights"
    assert "all but activations, mixed precision with AdamW" not in entries


def test_memory_rules_do_not_apply_to_deepspeed_or_another_optimizer() -> None:
    assert compared(PEAKS, {**ROW, "zero_stage": 2}) == {}
    other_optimizer = compared(PEAKS, {**ROW, "optimizer_class": "transformers.Adafactor"})
    assert "optimizer states, AdamW" not in other_optimizer


def test_time_shares_are_of_the_three_groups_alone() -> None:
    seconds = {"tensor contractions": 2.0, "idle": 9.0}
    entries = {entry.name: entry for entry in rules_of_thumb.time_shares(seconds)}
    assert entries["tensor contractions, share of the three groups"].value == 1.0
    assert not any(entry.held for entry in entries.values())
    assert list(rules_of_thumb.time_shares({"idle": 9.0})) == []


def test_backward_ratio_holds_near_two() -> None:
    assert [rules_of_thumb.backward_ratio(ratio).held for ratio in (1.9, 3.0)] == [True, False]


def test_peak_check_holds_for_an_equal_step_only() -> None:
    (equal,) = rules_of_thumb.peak_check(20_001, ROW)
    (other,) = rules_of_thumb.peak_check(19_000, ROW)
    assert (equal.held, other.held) == (True, False)
    assert list(rules_of_thumb.peak_check(19_000, {})) == []
