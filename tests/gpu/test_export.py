"""On a GPU, an exported train.py takes the row's peak memory to the byte."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.isolation.slot import Slot
from jobs.node.process_variables import process_variables
from jobs.record import Outcome, TrialRecord
from orchestrator.export import export
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from tests.gpu.shared import BERT_LARGE, gpu_marks

CONFIG = (
    BERT_LARGE
    + """\
data:
  synthetic: {{sequence_length: 512, samples: 512}}
trials:
  - {choices}
measure:
  warmup_steps: 2
  steps: 4
  relative_error: 0
"""
)

CASES = {
    "bf16": "{precision: bf16, micro_batch: 16}",
    "accumulated_checkpointed": "{precision: bf16, micro_batch: 16, accumulation: 4, "
    "activations: checkpoint}",
    "adamw_bnb_8bit": "{precision: bf16, micro_batch: 16, optimizer: adamw_bnb_8bit}",
    "adam8bit_by_hand": "{precision: fp16, micro_batch: 16, optimizer: adam8bit_decay_groups}",
    "lora": "{precision: bf16, micro_batch: 16, adapter: lora_r8}",
    "asynchronous_unmasked": "{precision: bf16, micro_batch: 16, loop: trainer_async, "
    "attention: unmasked, dataloader: unpinned}",
    "accelerate_loop": "{precision: bf16, micro_batch: 16, loop: accelerate}",
    "accelerate_accumulated": "{precision: bf16, micro_batch: 16, loop: accelerate, "
    "optimizer: adafactor, accumulation: 2, activations: checkpoint}",
    "zero2_offload": "{precision: bf16, micro_batch: 16, offload: zero2_cpu_optimizer}",
}

AS_MEASURED = ("--synthetic", "--eval_strategy", "no", "--save_strategy", "no")
"""Options of an exported script that trains on what the trial trained on, and nothing else."""

pytestmark = gpu_marks(timeout_seconds=900)


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    """One slot for all trials, as in a sweep."""
    with Slot(cpus=os.cpu_count() or 1) as ready:
        yield ready


def _is_corrected(record: TrialRecord) -> bool:
    """Whether the trial itself had the Trainer divide the loss of its accumulated steps."""
    return record.measurements.get("accumulation_loss_scaling") == "corrected"


@pytest.mark.parametrize("case", CASES)
def test_exported_training_peaks_at_the_rows_bytes(case: str, slot: Slot, tmp_path: Path) -> None:
    config = tmp_path / "sweep.yaml"
    config.write_text(CONFIG.format(choices=CASES[case]))
    (spec,) = plan(load_config(config)).trials
    record = slot.run(spec, timeout_seconds=600.0)
    assert record.outcome is Outcome.OK, f"{record.reason}\n{record.provenance.log}"
    expected = record.measurements["peak_allocated_bytes"]
    losses = record.steps["loss"]
    export(spec, tmp_path / "exported", label=case, peak_bytes=expected)
    variables = dict(process_variables(os.cpu_count() or 1))
    variables.pop("PYTHONPATH", None)
    done = subprocess.run(
        [sys.executable, "train.py", "--max_steps", str(len(losses)), *AS_MEASURED],
        cwd=tmp_path / "exported",
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    figures = json.loads(done.stdout.splitlines()[-1])
    print(f"\n{case}: exported {figures['peak_allocated_bytes']:,} B, row {expected:,} B")
    assert figures["peak_allocated_bytes"] == expected
    mean = sum(losses) / len(losses)
    if case == "accumulated_checkpointed" and not _is_corrected(record):
        mean /= 4  # the trial's Trainer left the division to a model that does not divide
    assert figures["train_loss"] == pytest.approx(mean, rel=0.05)


STEPS = 50
BATCH = 32
REFERENCE = "{precision: fp32, micro_batch: 32}"
ACCUMULATED = "{precision: bf16, micro_batch: 8, accumulation: 4}"
NO_DROPOUT = """\
    hidden_dropout_prob: 0.0
    attention_probs_dropout_prob: 0.0
"""


def test_exported_accumulation_has_the_losses_of_the_fp32_reference(tmp_path: Path) -> None:
    reference = _trained_losses(REFERENCE, tmp_path / "reference")
    accumulated = _trained_losses(ACCUMULATED, tmp_path / "accumulated")
    for step in (0, 9, 24, STEPS - 1):
        print(f"step {step + 1}: fp32 {reference[step]:.4f}, exported {accumulated[step]:.4f}")
    # The same samples and weights, and no dropout: only bf16's rounding is left at first.
    assert accumulated[0] == pytest.approx(reference[0], rel=0.02)
    assert statistics.fmean(accumulated) == pytest.approx(statistics.fmean(reference), rel=0.05)


def _trained_losses(choices: str, folder: Path) -> list[float]:
    """Losses of each step of an exported training, from the checkpoint that it leaves."""
    folder.mkdir()
    config = folder / "sweep.yaml"
    text = CONFIG.format(choices=choices).replace("data:\n", f"{NO_DROPOUT}data:\n", 1)
    config.write_text(text)
    (spec,) = plan(load_config(config)).trials
    assert spec.effective_batch == BATCH
    export(spec, folder / "train", label=choices)
    options = ["--synthetic", "--eval_strategy", "no", "--logging_steps", "1"]
    done = subprocess.run(
        [sys.executable, "train.py", "--max_steps", str(STEPS), *options],
        cwd=folder / "train",
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    state = folder / "train" / "output" / f"checkpoint-{STEPS}" / "trainer_state.json"
    history = json.loads(state.read_text())["log_history"]
    return [entry["loss"] for entry in history if "loss" in entry]
