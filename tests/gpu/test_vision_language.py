"""On a GPU: vision-language trials against the same training by hand, and the shipped sweep."""

from collections.abc import Mapping

import pytest

from orchestrator.storage.layout import TRIALS
from orchestrator.storage.tables.table_reader import read_trials_file
from tests.gpu.bare_vision import CASES, CONFIG, IMAGE_SIZE, MICRO_BATCH, STEPS, TOKENS
from tests.gpu.shared import bare_figures, gpu_marks, measured, planned, run_here

CHOICES: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "checkpoint": {"activations": "checkpoint"},
    "frozen": {"vision": "frozen"},
    "lora": {"adapter": "lora_r8_all_linear"},
}

pytestmark = gpu_marks()


@pytest.mark.parametrize("case", CASES)
def test_peak_of_images_with_texts_equals_the_bare_script(case, slot, tmp_path):
    model = {"task": "image-text-to-text", "architecture": "qwen2_5_vl", "config": CONFIG}
    choices = {"precision": "bf16", "micro_batch": MICRO_BATCH, **CHOICES[case]}
    samples = STEPS * MICRO_BATCH
    data = {"synthetic": {"sequence_length": TOKENS, "image_size": IMAGE_SIZE, "samples": samples}}
    record = measured(slot, planned(tmp_path, model, choices, data, steps=STEPS - 2))
    figures = bare_figures("bare_vision", case)
    print(record.measurements["peak_allocated_bytes"])
    assert record.measurements["peak_allocated_bytes"] == figures["peak_allocated_bytes"]
    assert record.measurements["image_tokens_per_sample"] == 256


def test_shipped_vision_sweep_finds_a_frontier_in_two_minutes(tmp_path):
    output = tmp_path / "vlm"
    options = ["--time-budget", "120s", "--output", str(output)]
    print(run_here("-m", "orchestrator.sweep", "configs/vlm.yaml", *options))
    rows = read_trials_file(output / TRIALS).rows
    trained = [row for row in rows if row["outcome"] == "ok"]
    assert trained
    assert {row["image_tokens_per_sample"] for row in trained} == {576.0}
    assert not [row for row in rows if row["outcome"] == "failed"]
