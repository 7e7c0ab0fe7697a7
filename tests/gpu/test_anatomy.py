"""Anatomies on a GPU: memory adds up to what NVML saw, operations to the step.

``python -m tests.gpu.test_anatomy`` prints every ledger.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from jobs.anatomy.time.phases import BACKWARD_TO_FORWARD
from jobs.anatomy_record import Anatomy
from jobs.isolation.slot import Slot
from jobs.record import Outcome, TrialRecord
from jobs.spec import DataSpec, MeasureSpec, ModelSpec, Needs, SyntheticData, TrialSpec
from jobs.techniques import AXES
from jobs.techniques.variant import merge
from tests.gpu.shared import gpu_marks

_BERT = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
_DECODER = {
    "hidden_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "intermediate_size": 2816,
}
BERT = ModelSpec(task="sequence-classification", architecture="bert", config=_BERT)
LLAMA = ModelSpec(
    task="causal-lm",
    architecture="llama",
    config={**_DECODER, "num_key_value_heads": 4, "vocab_size": 32000},
)
VIT = ModelSpec(
    task="image-classification",
    architecture="vit",
    config={
        "hidden_size": 1024,
        "num_hidden_layers": 12,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
)
T5 = ModelSpec(
    task="seq2seq-lm",
    architecture="t5",
    config={"d_model": 768, "num_layers": 6, "num_heads": 12, "d_kv": 64, "d_ff": 3072},
)

TIMEOUT = 300.0
CASES: dict[str, tuple[ModelSpec, dict[str, Any]]] = {
    "fp32": (BERT, {"micro_batch": 4, "precision": "fp32"}),
    "bf16": (BERT, {"micro_batch": 16, "precision": "bf16"}),
    "bf16, accumulation": (BERT, {"micro_batch": 8, "accumulation": 8, "precision": "bf16"}),
    "checkpointing": (BERT, {"micro_batch": 32, "precision": "bf16", "activations": "checkpoint"}),
    "LoRA": (BERT, {"micro_batch": 16, "precision": "bf16", "adapter": "lora_r8"}),
    "8-bit AdamW": (BERT, {"micro_batch": 16, "precision": "bf16", "optimizer": "adamw_bnb_8bit"}),
    "paged 8-bit AdamW": (
        BERT,
        {"micro_batch": 16, "precision": "bf16", "optimizer": "paged_adamw_8bit"},
    ),
    "ZeRO-2 offload": (
        BERT,
        {"micro_batch": 16, "precision": "bf16", "offload": "zero2_cpu_optimizer"},
    ),
    "ZeRO-2 offload, accumulation": (
        BERT,
        {
            "micro_batch": 8,
            "accumulation": 4,
            "precision": "bf16",
            "offload": "zero2_cpu_optimizer",
        },
    ),
    "steps long enough to be timed and profiled at once": (
        BERT,
        {"micro_batch": 128, "precision": "tf32"},
    ),
    "accelerate loop": (BERT, {"micro_batch": 16, "precision": "bf16", "loop": "accelerate"}),
    "causal LM": (LLAMA, {"micro_batch": 8, "precision": "bf16"}),
    "vision": (VIT, {"micro_batch": 32, "precision": "bf16"}),
    "encoder-decoder": (T5, {"micro_batch": 8, "precision": "bf16"}),
    "compile": (
        replace(VIT, config={**VIT.config, "num_hidden_layers": 4}),
        {"micro_batch": 32, "precision": "bf16", "compile": "inductor"},
    ),
}

pytestmark = gpu_marks(timeout_seconds=600)


def make_spec(model: ModelSpec, choices: dict[str, Any], *, profile: bool = True) -> TrialSpec:
    """A short trial of a model under some techniques."""
    chosen = {name: axis.default for name, axis in AXES.items()} | choices
    return TrialSpec(
        choices=chosen,
        model=model,
        data=DataSpec(synthetic=SyntheticData(sequence_length=512, samples=256)),
        settings=merge([AXES[name].variant(value) for name, value in chosen.items()], {}, None),
        measure=MeasureSpec(warmup_steps=3, steps=4, profile=profile),
        needs=Needs(gpus=1),
    )


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    """One slot for the whole file."""
    with Slot(cpus=os.cpu_count() or 1) as slot:
        yield slot


@functools.cache
def measured(slot: Slot, case: str, profile: bool = True) -> TrialRecord:
    """The record of a case's trial, run once."""
    model, choices = CASES[case]
    record = slot.run(make_spec(model, choices, profile=profile), TIMEOUT)
    assert record.outcome is Outcome.OK, f"{record.reason}\n{record.provenance.log}"
    print(f"== {case}{'' if profile else ', not profiled'}\n{render(record)}")
    return record


def anatomy_of(record: TrialRecord) -> Anatomy:
    missing = record.measurements.get("anatomy_missing")
    assert record.anatomy is not None, f"{missing}\n{record.provenance.log}"
    return record.anatomy


@pytest.mark.parametrize("case", CASES)
def test_anatomy_memory_adds_up_to_what_nvml_saw(slot: Slot, case: str) -> None:
    record = measured(slot, case)
    memory = anatomy_of(record).values("memory")
    peak = record.measurements["device_peak_bytes"]
    assert sum(memory.values()) == peak
    assert abs(memory["residual"]) <= 0.01 * peak
    assert memory.get("other", 0) <= 0.01 * peak, "memory of an unknown owner"


@pytest.mark.parametrize("case", CASES)
def test_anatomy_operations_and_phases_add_up_to_the_step(slot: Slot, case: str) -> None:
    record = measured(slot, case)
    anatomy = anatomy_of(record)
    step = record.measurements["step_seconds_median"]
    assert sum(anatomy.values("operations").values()) == pytest.approx(step, rel=0.1)
    assert sum(anatomy.values("step").values()) == pytest.approx(step, rel=0.1)
    if record.measurements["host_bound_share"] < 0.5:
        phases = anatomy.values("phases")
        phases.pop(BACKWARD_TO_FORWARD, None)
        assert sum(phases.values()) == pytest.approx(step, rel=0.3), "unlike the counted steps"


@pytest.mark.parametrize("case", ["bf16", "ZeRO-2 offload"])
def test_anatomy_changes_no_peak_of_its_trial(slot: Slot, case: str) -> None:
    profiled = measured(slot, case, True).measurements
    plain = measured(slot, case, False).measurements
    for name in ("peak_allocated_bytes", "peak_reserved_bytes"):
        assert profiled[name] == plain[name]


@pytest.mark.parametrize("case", CASES)
def test_anatomy_takes_less_than_three_seconds(slot: Slot, case: str) -> None:
    measured(slot, "fp32")  # the first trial finds the driver's caches empty
    row = measured(slot, case).measurements
    assert row["anatomy_seconds"] < 3 + max(0.0, row["step_seconds_median"] - 2)


@pytest.mark.parametrize(
    ("case", "part"),
    [
        ("bf16", "BertSelfAttention"),
        ("checkpointing", "BertOutput"),
        ("causal LM", "LlamaMLP"),
        ("LoRA", "peft.Linear"),
        ("compile", "compiled graphs"),
    ],
)
def test_anatomy_modules_add_up_to_both_passes(slot: Slot, case: str, part: str) -> None:
    anatomy = anatomy_of(measured(slot, case))
    modules = anatomy.values("modules")
    step = anatomy.values("step")
    total = sum(modules.values())
    assert total == pytest.approx(step["forward"] + step["backward"], rel=0.1)
    assert modules[part] > 0.05 * total
    assert modules.get("outside all modules", 0) < 0.1 * total


def render(record: TrialRecord) -> str:
    """A record's anatomy as text."""
    row = record.measurements
    lines = [
        f"{row['device_peak_bytes'] / 2**20:.0f} MiB by NVML, "
        f"{row['peak_allocated_bytes'] / 2**20:.2f} allocated, "
        f"{row['step_seconds_median'] * 1e3:.2f} ms per step, "
        f"anatomy {row.get('anatomy_seconds', 0):.2f} s"
    ]
    for entry in record.anatomy.entries if record.anatomy else ():
        scale, unit = {"B": (2**-20, "MiB"), "s": (1e3, "ms")}.get(entry.unit, (1, entry.unit))
        line = f"  {entry.part:<11} {entry.name:<50} {entry.value * scale:>14.6g} {unit}"
        if entry.expected is not None:
            line += f" rule {entry.expected * scale:.5g} held {entry.held}"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    """Print every case's anatomy, whatever it shows."""
    with Slot(cpus=os.cpu_count() or 1) as slot:
        for case, (model, choices) in CASES.items():
            record = slot.run(make_spec(model, choices), TIMEOUT)
            missing = record.measurements.get("anatomy_missing", "")
            print(f"== {case}: {record.outcome} {record.reason} {missing}")
            if record.outcome is Outcome.OK:
                print(render(record), flush=True)
            if record.outcome is not Outcome.OK or missing:
                print(record.provenance.log, flush=True)
        plain = slot.run(make_spec(*CASES["bf16"], profile=False), TIMEOUT)
        peaks = {name: v for name, v in plain.measurements.items() if name.startswith("peak_")}
        print("bf16, not profiled:", peaks)


if __name__ == "__main__":
    main()
