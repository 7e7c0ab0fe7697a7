"""Anatomies of real trials on the CPU: their ledgers add up, and profiling changes no figure."""

from collections.abc import Mapping
from typing import Any

import pytest

from jobs.anatomy_record import Anatomy
from jobs.record import TrialRecord
from tests.conftest import build_tiny_spec
from tests.integration.conftest import Run


def profiled_by(run: Run, choices: Mapping[str, Any], *, profile: bool = True) -> TrialRecord:
    return run(build_tiny_spec(choices, profile=profile, warmup_steps=2))


def anatomy_of(record: TrialRecord) -> Anatomy:
    assert record.anatomy is not None, record.measurements["anatomy_missing"]
    return record.anatomy


def test_anatomy_memory_adds_up_to_the_peak(run):
    record = profiled_by(run, {})
    memory = anatomy_of(record).values("memory")
    row = record.measurements
    assert sum(memory.values()) == row["peak_allocated_bytes"]
    assert memory["optimizer states"] == row["optimizer_state_bytes"]
    assert memory["weights"] + memory["optimizer states"] == row["persistent_bytes"]


def test_anatomy_changes_no_measurement_of_its_trial(run):
    profiled = profiled_by(run, {"precision": "bf16"})
    plain = profiled_by(run, {"precision": "bf16"}, profile=False)
    for name in ("peak_allocated_bytes", "optimizer_state_bytes", "persistent_bytes"):
        assert profiled.measurements[name] == plain.measurements[name]
    assert profiled.steps["loss"] == plain.steps["loss"]
    assert plain.anatomy is None
    assert profiled.measurements["anatomy_seconds"] < profiled.slot_seconds


@pytest.mark.parametrize("loop", ["trainer", "accelerate"])
def test_anatomy_of_many_micro_batches_stands_for_all(run, loop):
    single = profiled_by(run, {"accumulation": 1, "loop": loop})
    many = profiled_by(run, {"accumulation": 6, "loop": loop})
    flop = [anatomy_of(record).values("efficiency")["model flop"] for record in (single, many)]
    assert flop[1] == 6 * flop[0]
    memory = anatomy_of(many).values("memory")
    peak = many.measurements["peak_allocated_bytes"]
    # Only the inputs of earlier micro-batches are missing.
    assert sum(memory.values()) == pytest.approx(peak, rel=0.01)
    assert memory["gradients"] >= 0.9 * 4 * many.measurements["parameters_trainable"]
    # The garbage collector may free something small of an earlier micro-batch in the step.
    assert memory.get("other", 0) <= 0.01 * peak


@pytest.mark.parametrize(
    ("choices", "present", "absent"),
    [
        (
            {"precision": "bf16"},
            {"autocast copies of weights"},
            {"recomputed activations", "LoRA adapters"},
        ),
        ({"activations": "checkpoint"}, {"recomputed activations"}, {"autocast copies of weights"}),
        (
            {"adapter": "lora_r8", "loop": "accelerate"},
            {"LoRA adapters"},
            {"recomputed activations"},
        ),
    ],
    ids=["autocast", "checkpointing", "LoRA by Accelerate"],
)
def test_anatomy_names_what_a_technique_adds(run, choices, present, absent):
    anatomy = anatomy_of(profiled_by(run, choices))
    assert present <= {*anatomy.timeline.held}
    assert not absent & {*anatomy.timeline.held}
    step = anatomy.values("step")
    assert {"forward", "backward", "optimizer", "data wait"} <= {*step}
    phases = anatomy.values("phases")
    del phases["backward / forward"]
    assert sum(step.values()) == pytest.approx(sum(phases.values()))
