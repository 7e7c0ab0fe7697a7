"""An anatomy's extra steps, and the published rules of thumb that it is compared with."""

from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from jobs.anatomy import rules_of_thumb
from jobs.anatomy.step_profiler import StepProfiler
from jobs.anatomy.trace_reader import read
from jobs.anatomy_record import Entry


def train(observer: StepProfiler, micro_batches: int) -> tuple[int, int]:
    """A loop that reports everything; returns the steps and micro-batches that it trained."""
    weight = torch.ones(2, requires_grad=True)
    steps = 0
    trained = 0
    observer.train_begin()
    while True:
        for left in reversed(range(micro_batches)):
            observer.phase("data")
            inputs = {"x": torch.ones(2)}
            observer.micro_batch(inputs)
            if observer.wants(left):
                trained += 1
                observer.phase("forward")
                loss = (weight * inputs["x"]).sum()
                observer.phase("backward")
                loss.backward()
                observer.phase("upkeep")
        steps += 1
        if observer.step_end():
            return steps, trained


def make_observer(timed_steps: int) -> StepProfiler:
    return StepProfiler(
        list, nullcontext(), on_gpu=False, timed_steps=timed_steps, usual_data_wait=0.0
    )


@pytest.mark.parametrize(("timed_steps", "steps"), [(0, 1), (1, 2), (3, 4)])
@pytest.mark.parametrize(
    ("micro_batches", "trained", "repetitions"), [(1, 1, 1.0), (2, 2, 1.0), (5, 2, 2.5)]
)
def test_observer_trains_no_more_than_it_needs(
    timed_steps, steps, micro_batches, trained, repetitions
):
    observer = make_observer(timed_steps)
    assert train(observer, micro_batches) == (steps, steps * trained)
    assert observer.repetitions == repetitions


def test_observer_times_phases_and_caps_the_data_wait():
    observer = make_observer(timed_steps=3)
    train(observer, micro_batches=1)
    assert list(observer.phase_seconds) == ["upkeep", "data", "forward", "backward"]
    assert observer.phase_seconds["data"] == 0.0, "no more than that of a counted step"
    assert observer.phase_seconds["forward"] > 0.0


def test_observer_profiles_every_phase_of_its_last_step():
    observer = make_observer(timed_steps=1)
    train(observer, micro_batches=5)
    names = Counter(phase.name for phase in read(observer.profile, "cpu", frozenset()).phases)
    assert (names["data"], names["forward"], names["backward"]) == (5, 2, 2)


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


def test_memory_rules_hold_for_textbook_mixed_precision():
    entries = compared(PEAKS, ROW)
    assert {name for name, entry in entries.items() if entry.held} == {
        "weights, fp32",
        "weights, mixed precision",
        "gradients",
        "optimizer states, AdamW",
        "all but activations, mixed precision with AdamW",
    }


def test_memory_rules_of_full_training_leave_adapters_out():
    peaks = {**PEAKS, "LoRA adapters": 200, "weights": 3800}
    entries = compared(peaks, {**ROW, "parameters_trainable": 50})
    assert not entries["optimizer states, AdamW"].held
    assert entries["weights, fp32"].value == 4000, "adapters are weights"
    assert "all but activations, mixed precision with AdamW" not in entries


def test_memory_rules_do_not_apply_to_deepspeed_or_another_optimizer():
    assert compared(PEAKS, {**ROW, "zero_stage": 2}) == {}
    other_optimizer = compared(PEAKS, {**ROW, "optimizer_class": "transformers.Adafactor"})
    assert "optimizer states, AdamW" not in other_optimizer


def test_time_shares_are_of_the_three_groups_alone():
    seconds = {"tensor contractions": 2.0, "idle": 9.0}
    entries = {entry.name: entry for entry in rules_of_thumb.time_shares(seconds)}
    assert entries["tensor contractions, share of the three groups"].value == 1.0
    assert not any(entry.held for entry in entries.values())
    assert list(rules_of_thumb.time_shares({"idle": 9.0})) == []


def test_backward_ratio_holds_near_two():
    assert [rules_of_thumb.backward_ratio(ratio).held for ratio in (1.9, 3.0)] == [True, False]


def test_peak_check_holds_for_an_equal_step_only():
    (equal,) = rules_of_thumb.peak_check(20_001, ROW)
    (other,) = rules_of_thumb.peak_check(19_000, ROW)
    assert (equal.held, other.held) == (True, False)
    assert list(rules_of_thumb.peak_check(19_000, {})) == []
