"""LoRA on a 16-bit and on quantized bases against the same training by hand in bare_base.py.

The bare script loads a checkpoint through transformers; a trial quantizes random weights layer by
layer. Their peak memory is equal to the byte.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.isolation.slot import Slot
from tests.gpu.bare_base import CASES, CONFIG, STEPS, TOKENS
from tests.gpu.shared import gpu_marks
from tests.gpu.side_by_side import bare_figures, measured

MICRO_BATCH = 4
WARMUP_STEPS = 2

pytestmark = gpu_marks(timeout_seconds=900)


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    with Slot(cpus=os.cpu_count() or 1) as slot:
        yield slot


@pytest.mark.parametrize("case", CASES)
def test_peak_on_a_base_equals_the_bare_script(case: str, slot: Slot, tmp_path: Path) -> None:
    choices = {
        "base": case,
        "adapter": "lora_r8_all_linear",
        "precision": "bf16",
        "micro_batch": MICRO_BATCH,
    }
    config = {
        "model": {"task": "causal-lm", "architecture": "llama", "config": CONFIG},
        "data": {"synthetic": {"sequence_length": TOKENS, "samples": STEPS * MICRO_BATCH}},
        "trials": [choices],
        "measure": {
            "warmup_steps": WARMUP_STEPS,
            "steps": STEPS - WARMUP_STEPS,
            "relative_error": 0,
        },
    }
    record = measured(slot, tmp_path, config)
    row = record.measurements
    print({name: row[name] for name in row if name.startswith("weights_")})
    if case != "16bit":
        assert row["base_quantized_share"] == 1.0
    bare = bare_figures("bare_base.py", case, "--micro-batch", str(MICRO_BATCH))
    assert row["peak_allocated_bytes"] == bare["peak_allocated_bytes"]
