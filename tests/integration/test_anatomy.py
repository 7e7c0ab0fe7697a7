"""Anatomies of real trials on the CPU: the ledger is the tensors' bytes, and the trial's figures stay as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from jobs.anatomy_record import Anatomy
from jobs.isolation.slot import Slot
from jobs.record import Outcome, TrialRecord
from tests.conftest import build_tiny_spec


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    with Slot(cpus=1) as made:
        yield made


def run(slot: Slot, choices: Mapping[str, Any], *, anatomy: bool = True) -> TrialRecord:
    record = slot.run(build_tiny_spec(choices, anatomy=anatomy, warmup_steps=2), 240.0)
    assert record.outcome is Outcome.OK, f"{record.reason}\n{record.log}"
    return record


def anatomy_of(record: TrialRecord) -> Anatomy:
    assert record.anatomy is not None, record.measurements["anatomy_missing"]
    return record.anatomy


def test_the_ledger_is_the_peak_and_its_classes_the_tensors(slot: Slot) -> None:
    record = run(slot, {})
    memory = anatomy_of(record).values("memory")
    row = record.measurements
    assert sum(memory.values()) == row["peak_allocated_bytes"]
    assert memory["optimizer states"] == row["optimizer_state_bytes"]
    assert memory["weights"] + memory["optimizer states"] == row["persistent_bytes"]
    rules = {entry.name: entry for entry in anatomy_of(record).entries if entry.part == "rules"}
    assert rules["gradients"].value == 4 * row["parameters_trainable"]
    assert all(
        rules[name].held for name in ("weights, fp32", "gradients", "optimizer states, AdamW")
    )


def test_a_trial_that_is_taken_apart_measures_the_same(slot: Slot) -> None:
    with_it, without = (
        run(slot, {"precision": "bf16"}, anatomy=anatomy) for anatomy in (True, False)
    )
    assert (
        with_it.measurements["peak_allocated_bytes"] == without.measurements["peak_allocated_bytes"]
    )
    assert with_it.steps["loss"] == without.steps["loss"]
    assert without.anatomy is None
    assert with_it.measurements["anatomy_seconds"] < with_it.measurements["overhead_seconds"]


@pytest.mark.parametrize("loop", ["trainer", "accelerate"])
def test_of_many_micro_batches_the_last_tell_of_all(slot: Slot, loop: str) -> None:
    one, many = (run(slot, {"accumulation": passes, "loop": loop}) for passes in (1, 6))
    flop = [anatomy_of(record).values("efficiency")["model flop"] for record in (one, many)]
    assert flop[1] == 6 * flop[0]
    memory = anatomy_of(many).values("memory")
    peak = many.measurements["peak_allocated_bytes"]
    assert sum(memory.values()) == pytest.approx(peak, rel=0.01), (
        "only the inputs of micro-batches that are over"
    )
    assert memory["gradients"] >= 0.9 * 4 * many.measurements["parameters_trainable"]
    assert "other" not in memory


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
def test_what_a_technique_brings_has_a_name(
    slot: Slot, choices: dict[str, Any], present: set[str], absent: set[str]
) -> None:
    found = anatomy_of(run(slot, choices))
    assert present <= {*found.timeline.held}
    assert not absent & {*found.timeline.held}
    steps = found.values("step")
    assert {"forward", "backward", "optimizer", "data wait"} <= {*steps}
    phases = found.values("phases")
    phases.pop("backward / forward")
    assert sum(steps.values()) == pytest.approx(sum(phases.values()))
