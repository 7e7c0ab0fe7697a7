"""On a GPU: vision-language trials against the same training by hand, and the shipped sweep."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from jobs.isolation.slot import Slot
from orchestrator.storage.layout import TRIALS
from orchestrator.storage.tables.table_reader import read_trials_file
from tests.gpu.bare_vision import CASES, CONFIG, IMAGE_SIZE, MICRO_BATCH, STEPS, TOKENS
from tests.gpu.shared import gpu_marks
from tests.gpu.side_by_side import bare_figures, measured, run_here

WARMUP_STEPS = 2
CHOICES: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "checkpoint": {"activations": "checkpoint"},
    "frozen": {"vision": "frozen"},
    "lora": {"adapter": "lora_r8_all_linear"},
}

pytestmark = gpu_marks(timeout_seconds=900)


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    with Slot(cpus=os.cpu_count() or 1) as slot:
        yield slot


@pytest.mark.parametrize("case", CASES)
def test_peak_of_images_with_texts_equals_the_bare_script(
    case: str, slot: Slot, tmp_path: Path
) -> None:
    synthetic = {
        "sequence_length": TOKENS,
        "image_size": IMAGE_SIZE,
        "samples": STEPS * MICRO_BATCH,
    }
    config = {
        "model": {
            "task": "image-text-to-text",
            "architecture": "qwen2_5_vl",
            "config": CONFIG,
        },
        "data": {"synthetic": synthetic},
        "trials": [{"precision": "bf16", "micro_batch": MICRO_BATCH, **CHOICES[case]}],
        "measure": {
            "warmup_steps": WARMUP_STEPS,
            "steps": STEPS - WARMUP_STEPS,
            "relative_error": 0,
        },
    }
    record = measured(slot, tmp_path, config)
    figures = bare_figures("bare_vision.py", case)
    print(record.measurements["peak_allocated_bytes"])
    assert record.measurements["peak_allocated_bytes"] == figures["peak_allocated_bytes"]
    assert record.measurements["image_tokens_per_sample"] == 256


def test_shipped_vision_sweep_finds_a_frontier_in_two_minutes(tmp_path: Path) -> None:
    output = tmp_path / "vlm"
    options = ["--time-budget", "120s", "--output", str(output)]
    print(run_here("-m", "orchestrator.sweep", "configs/vlm.yaml", *options))
    rows = read_trials_file(output / TRIALS).rows
    trained = [row for row in rows if row["outcome"] == "ok"]
    assert trained
    assert {row["image_tokens_per_sample"] for row in trained} == {576.0}
    assert not [row for row in rows if row["outcome"] == "failed"]
