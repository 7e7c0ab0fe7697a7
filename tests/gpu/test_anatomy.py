"""Anatomies on a GPU: memory adds up to what NVML saw, operations to the step."""

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml

from jobs.anatomy.time.phases import BACKWARD_TO_FORWARD
from jobs.anatomy_record import Anatomy
from jobs.record import TrialRecord
from tests.gpu.shared import BERT_LARGE, DECODER, gpu_marks, measured, planned

VIT = {
    "task": "image-classification",
    "architecture": "vit",
    "config": {**BERT_LARGE["config"], "num_hidden_layers": 12},
}
T5 = {
    "task": "seq2seq-lm",
    "architecture": "t5",
    "config": {"d_model": 768, "num_layers": 6, "num_heads": 12, "d_kv": 64, "d_ff": 3072},
}

CASES: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "fp32": (BERT_LARGE, "{micro_batch: 4, precision: fp32}"),
    "bf16": (BERT_LARGE, "{micro_batch: 16}"),
    "bf16, accumulation": (BERT_LARGE, "{micro_batch: 8, accumulation: 8}"),
    "checkpointing": (BERT_LARGE, "{micro_batch: 32, activations: checkpoint}"),
    "LoRA": (BERT_LARGE, "{micro_batch: 16, adapter: lora_r8}"),
    "8-bit AdamW": (BERT_LARGE, "{micro_batch: 16, optimizer: adamw_bnb_8bit}"),
    "paged 8-bit AdamW": (BERT_LARGE, "{micro_batch: 16, optimizer: paged_adamw_8bit}"),
    "ZeRO-2 offload": (BERT_LARGE, "{micro_batch: 16, offload: zero2_cpu_optimizer}"),
    "ZeRO-2 offload, accumulation": (
        BERT_LARGE,
        "{micro_batch: 8, accumulation: 4, offload: zero2_cpu_optimizer}",
    ),
    "timed and profiled at once": (BERT_LARGE, "{micro_batch: 128, precision: tf32}"),
    "accelerate loop": (BERT_LARGE, "{micro_batch: 16, loop: accelerate}"),
    "causal LM": (DECODER, "{micro_batch: 8}"),
    "vision": (VIT, "{micro_batch: 32}"),
    "encoder-decoder": (T5, "{micro_batch: 8}"),
    "compile": (
        {**VIT, "config": {**VIT["config"], "num_hidden_layers": 4}},
        "{micro_batch: 32, compile: inductor}",
    ),
}
"""Name -> model and choices, in bf16 unless they say otherwise."""

pytestmark = gpu_marks(timeout_seconds=600)


@pytest.fixture(scope="module")
def measure(slot, tmp_path_factory):
    """Runs a case's short trial, each once."""
    folder = tmp_path_factory.mktemp("anatomy")

    @functools.cache
    def run_once(case: str, *, profile: bool = True) -> TrialRecord:
        model, choices = CASES[case]
        chosen = {"precision": "bf16", **yaml.safe_load(choices)}
        spec = planned(folder, model, chosen, (512, 256), warmup_steps=3)
        spec = replace(spec, measure=replace(spec.measure, profile=profile))
        record = measured(slot, spec)
        peak = record.measurements["device_peak_bytes"]
        print(f"{case}: {peak / 2**20:.0f} MiB by NVML, profile {profile}")
        return record

    return run_once


def anatomy_of(record: TrialRecord) -> Anatomy:
    missing = record.measurements.get("anatomy_missing")
    assert record.anatomy is not None, f"{missing}\n{record.provenance.log}"
    return record.anatomy


@pytest.mark.parametrize("case", CASES)
def test_anatomy_memory_adds_up_to_what_nvml_saw(measure, case):
    record = measure(case)
    memory = anatomy_of(record).values("memory")
    peak = record.measurements["device_peak_bytes"]
    assert sum(memory.values()) == peak
    assert abs(memory["residual"]) <= 0.01 * peak
    assert memory.get("other", 0) <= 0.01 * peak, "memory of an unknown owner"


@pytest.mark.parametrize("case", CASES)
def test_anatomy_operations_and_phases_add_up_to_the_step(measure, case):
    record = measure(case)
    anatomy = anatomy_of(record)
    step = record.measurements["step_seconds_median"]
    assert sum(anatomy.values("operations").values()) == pytest.approx(step, rel=0.1)
    assert sum(anatomy.values("step").values()) == pytest.approx(step, rel=0.1)
    if record.measurements["host_bound_share"] < 0.5:
        phases = anatomy.values("phases")
        phases.pop(BACKWARD_TO_FORWARD, None)
        assert sum(phases.values()) == pytest.approx(step, rel=0.3), "unlike the counted steps"


@pytest.mark.parametrize("case", ["bf16", "ZeRO-2 offload"])
def test_anatomy_changes_no_peak_of_its_trial(measure, case):
    profiled = measure(case).measurements
    plain = measure(case, profile=False).measurements
    for name in ("peak_allocated_bytes", "peak_reserved_bytes"):
        assert profiled[name] == plain[name]


@pytest.mark.parametrize("case", CASES)
def test_anatomy_takes_less_than_three_seconds(measure, case):
    measure("fp32")  # the first trial finds the driver's caches empty
    row = measure(case).measurements
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
def test_anatomy_modules_add_up_to_both_passes(measure, case, part):
    anatomy = anatomy_of(measure(case))
    modules = anatomy.values("modules")
    step = anatomy.values("step")
    total = sum(modules.values())
    assert total == pytest.approx(step["forward"] + step["backward"], rel=0.1)
    assert modules[part] > 0.05 * total
    assert modules.get("outside all modules", 0) < 0.1 * total
