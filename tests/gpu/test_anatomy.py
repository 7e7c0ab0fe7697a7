"""Anatomies on a GPU: memory adds up to what NVML saw, operations to the step."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import yaml

from jobs.anatomy.time.phases import BACKWARD_TO_FORWARD
from jobs.anatomy_record import Anatomy
from jobs.isolation.slot import Slot
from jobs.record import TrialRecord
from jobs.spec import DataSpec, MeasureSpec, ModelSpec, Needs, SyntheticData, TrialSpec
from jobs.techniques import AXES
from jobs.techniques.variant import merge
from tests.gpu.shared import BERT_LARGE, gpu_marks, measured

LLAMA = {
    "hidden_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "intermediate_size": 2816,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
}
T5 = {"d_model": 768, "num_layers": 6, "num_heads": 12, "d_kv": 64, "d_ff": 3072}
BERT = ModelSpec(**BERT_LARGE)
VIT = ModelSpec(
    task="image-classification",
    architecture="vit",
    config={**BERT.config, "num_hidden_layers": 12},
)

CASES: dict[str, tuple[ModelSpec, str]] = {
    "fp32": (BERT, "{micro_batch: 4, precision: fp32}"),
    "bf16": (BERT, "{micro_batch: 16}"),
    "bf16, accumulation": (BERT, "{micro_batch: 8, accumulation: 8}"),
    "checkpointing": (BERT, "{micro_batch: 32, activations: checkpoint}"),
    "LoRA": (BERT, "{micro_batch: 16, adapter: lora_r8}"),
    "8-bit AdamW": (BERT, "{micro_batch: 16, optimizer: adamw_bnb_8bit}"),
    "paged 8-bit AdamW": (BERT, "{micro_batch: 16, optimizer: paged_adamw_8bit}"),
    "ZeRO-2 offload": (BERT, "{micro_batch: 16, offload: zero2_cpu_optimizer}"),
    "ZeRO-2 offload, accumulation": (
        BERT,
        "{micro_batch: 8, accumulation: 4, offload: zero2_cpu_optimizer}",
    ),
    "timed and profiled at once": (BERT, "{micro_batch: 128, precision: tf32}"),
    "accelerate loop": (BERT, "{micro_batch: 16, loop: accelerate}"),
    "causal LM": (
        ModelSpec(task="causal-lm", architecture="llama", config=LLAMA),
        "{micro_batch: 8}",
    ),
    "vision": (VIT, "{micro_batch: 32}"),
    "encoder-decoder": (
        ModelSpec(task="seq2seq-lm", architecture="t5", config=T5),
        "{micro_batch: 8}",
    ),
    "compile": (
        replace(VIT, config={**VIT.config, "num_hidden_layers": 4}),
        "{micro_batch: 32, compile: inductor}",
    ),
}
"""Name -> model and choices, in bf16 unless they say otherwise."""

pytestmark = gpu_marks(timeout_seconds=600)


@functools.cache
def measured_case(slot: Slot, case: str, profile: bool = True) -> TrialRecord:
    """The record of a case's short trial, run once."""
    model, choices = CASES[case]
    defaults = {name: axis.default for name, axis in AXES.items()}
    chosen = {**defaults, "precision": "bf16", **yaml.safe_load(choices)}
    spec = TrialSpec(
        choices=chosen,
        model=model,
        data=DataSpec(synthetic=SyntheticData(sequence_length=512, samples=256)),
        settings=merge([AXES[name].variant(value) for name, value in chosen.items()], {}, None),
        measure=MeasureSpec(warmup_steps=3, steps=4, profile=profile),
        needs=Needs(gpus=1),
    )
    record = measured(slot, spec)
    row = record.measurements
    print(f"{case}: {row['device_peak_bytes'] / 2**20:.0f} MiB by NVML, profile {profile}")
    return record


def anatomy_of(record: TrialRecord) -> Anatomy:
    missing = record.measurements.get("anatomy_missing")
    assert record.anatomy is not None, f"{missing}\n{record.provenance.log}"
    return record.anatomy


@pytest.mark.parametrize("case", CASES)
def test_anatomy_memory_adds_up_to_what_nvml_saw(slot: Slot, case: str) -> None:
    record = measured_case(slot, case)
    memory = anatomy_of(record).values("memory")
    peak = record.measurements["device_peak_bytes"]
    assert sum(memory.values()) == peak
    assert abs(memory["residual"]) <= 0.01 * peak
    assert memory.get("other", 0) <= 0.01 * peak, "memory of an unknown owner"


@pytest.mark.parametrize("case", CASES)
def test_anatomy_operations_and_phases_add_up_to_the_step(slot: Slot, case: str) -> None:
    record = measured_case(slot, case)
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
    profiled = measured_case(slot, case, True).measurements
    plain = measured_case(slot, case, False).measurements
    for name in ("peak_allocated_bytes", "peak_reserved_bytes"):
        assert profiled[name] == plain[name]


@pytest.mark.parametrize("case", CASES)
def test_anatomy_takes_less_than_three_seconds(slot: Slot, case: str) -> None:
    measured_case(slot, "fp32")  # the first trial finds the driver's caches empty
    row = measured_case(slot, case).measurements
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
    anatomy = anatomy_of(measured_case(slot, case))
    modules = anatomy.values("modules")
    step = anatomy.values("step")
    total = sum(modules.values())
    assert total == pytest.approx(step["forward"] + step["backward"], rel=0.1)
    assert modules[part] > 0.05 * total
    assert modules.get("outside all modules", 0) < 0.1 * total
