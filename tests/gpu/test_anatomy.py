"""Anatomies on a GPU: ledgers add up to what NVML saw, operations to the step, and the trial's peaks stay as they are.

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
from jobs.node import nvml
from jobs.record import Outcome, TrialRecord
from jobs.spec import DataSpec, MeasureSpec, ModelSpec, Needs, SyntheticData, TrialSpec
from jobs.techniques import AXES
from jobs.techniques.base import merge

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

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not nvml.visible_uuids(), reason="needs a CUDA device"),
]


def spec(model: ModelSpec, choices: dict[str, Any], *, anatomy: bool = True) -> TrialSpec:
    """A short trial of a model under some techniques."""
    chosen = {name: axis.default for name, axis in AXES.items()} | choices
    return TrialSpec(
        choices=chosen,
        model=model,
        data=DataSpec(synthetic=SyntheticData(sequence_length=512, samples=256)),
        recipe=merge([AXES[name].variant(value) for name, value in chosen.items()], {}, None),
        measure=MeasureSpec(warmup_steps=3, steps=4, anatomy=anatomy),
        needs=Needs(gpus=1),
    )


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    with Slot(cpus=os.cpu_count() or 1) as made:
        yield made


@functools.cache
def measured(slot: Slot, case: str, anatomy: bool = True) -> TrialRecord:
    record = slot.run(spec(*CASES[case], anatomy=anatomy), 300)
    assert record.outcome is Outcome.OK, f"{record.reason}\n{record.log}"
    print(f"== {case}{'' if anatomy else ', not taken apart'}\n{render(record)}")
    return record


def taken_apart(record: TrialRecord) -> Anatomy:
    assert record.anatomy is not None, f"{record.measurements.get('anatomy_missing')}\n{record.log}"
    return record.anatomy


@pytest.mark.parametrize("case", CASES)
def test_the_ledger_adds_up_to_what_nvml_saw(slot: Slot, case: str) -> None:
    record = measured(slot, case)
    memory = taken_apart(record).values("memory")
    used = record.measurements["device_peak_bytes"]
    assert sum(memory.values()) == used
    assert abs(memory["residual"]) <= 0.01 * used
    assert memory.get("other", 0) <= 0.01 * used, "held by nobody who could be asked"


@pytest.mark.parametrize("case", CASES)
def test_operations_and_phases_add_up_to_the_step(slot: Slot, case: str) -> None:
    record = measured(slot, case)
    found = taken_apart(record)
    step = record.measurements["step_seconds_median"]
    assert sum(found.values("operations").values()) == pytest.approx(step, rel=0.1)
    assert sum(found.values("step").values()) == pytest.approx(step, rel=0.1)
    if record.measurements["host_bound_share"] < 0.5:
        timed = sum(
            value for name, value in found.values("phases").items() if name != BACKWARD_TO_FORWARD
        )
        assert timed == pytest.approx(step, rel=0.3), "another step than those that counted"


@pytest.mark.parametrize("case", ["bf16", "ZeRO-2 offload"])
def test_a_trial_that_is_taken_apart_measures_the_same(slot: Slot, case: str) -> None:
    names = ("peak_allocated_bytes", "peak_reserved_bytes")
    with_it, without = (measured(slot, case, anatomy).measurements for anatomy in (True, False))
    assert [with_it[name] for name in names] == [without[name] for name in names]


@pytest.mark.parametrize("case", CASES)
def test_a_trial_is_taken_apart_in_less_than_three_seconds(slot: Slot, case: str) -> None:
    measured(slot, "fp32")  # the first meets cold caches of the driver
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
def test_modules_add_up_to_both_passes(slot: Slot, case: str, part: str) -> None:
    found = taken_apart(measured(slot, case))
    spent, step = found.values("modules"), found.values("step")
    assert sum(spent.values()) == pytest.approx(step["forward"] + step["backward"], rel=0.1)
    assert spent[part] > 0.05 * sum(spent.values())
    assert spent.get("outside all modules", 0) < 0.1 * sum(spent.values())


def render(record: TrialRecord) -> str:
    """A record's anatomy as text."""
    row, lines = record.measurements, []
    lines.append(
        f"{row['device_peak_bytes'] / 2**20:.0f} MiB by NVML, {row['peak_allocated_bytes'] / 2**20:.2f} allocated, "
        f"{row['step_seconds_median'] * 1e3:.2f} ms a step, anatomy {row.get('anatomy_seconds', 0):.2f} s"
    )
    for entry in record.anatomy.entries if record.anatomy else ():
        scale, unit = {"B": (2**-20, "MiB"), "s": (1e3, "ms")}.get(entry.unit, (1, entry.unit))
        beside = (
            ""
            if entry.expected is None
            else f" rule {entry.expected * scale:.5g} held {entry.held}"
        )
        lines.append(
            f"  {entry.part:<11} {entry.name:<50} {entry.value * scale:>14.6g} {unit}{beside}"
        )
    return "\n".join(lines)


def main() -> None:
    """Every case's ledger, whatever it shows."""
    with Slot(cpus=os.cpu_count() or 1) as slot:
        for case, (model, choices) in CASES.items():
            record = slot.run(spec(model, choices), 300)
            print(
                f"== {case}: {record.outcome} {record.reason} {record.measurements.get('anatomy_missing', '')}"
            )
            print(render(record) if record.outcome is Outcome.OK else record.log, flush=True)
            if record.measurements.get("anatomy_missing"):
                print(record.log)
        plain = slot.run(
            replace(spec(*CASES["bf16"]), measure=MeasureSpec(warmup_steps=3, steps=4)), 300
        )
        print(
            "bf16 without anatomy:",
            {k: v for k, v in plain.measurements.items() if k.startswith("peak_")},
        )


if __name__ == "__main__":
    main()
