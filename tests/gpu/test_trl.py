"""On a GPU: TRL's loop has the losses of the Trainer, and the peak of a bare SFTTrainer."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from jobs.isolation.slot import Slot
from jobs.record import TrialRecord
from tests.gpu.shared import DECODER, gpu_marks, measured, peak_of_code, planned

STEPS = 6
BARE = """
import json, sys, torch, transformers, trl
from datasets import Dataset
from tokenizers import Tokenizer, models
config = transformers.AutoConfig.for_model("llama", pad_token_id=0, **json.loads(sys.argv[1]))
steps = int(sys.argv[2])
rows = torch.randint(100, 30000, (8 * steps, 1024)).tolist()
with torch.device("cuda"):
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
words = Tokenizer(models.WordLevel({"<pad>": 0}, unk_token="<pad>"))
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>")
arguments = trl.SFTConfig(
    output_dir=sys.argv[3], bf16=True, gradient_checkpointing=False, max_length=None,
    per_device_train_batch_size=8, max_steps=steps, report_to="none", save_strategy="no",
)
trainer = trl.SFTTrainer(
    model=model, args=arguments, train_dataset=Dataset.from_dict({"input_ids": rows}),
    processing_class=tokenizer,
)
trainer.train()
print(json.dumps(torch.cuda.max_memory_allocated()))
"""
pytestmark = [
    *gpu_marks(),
    pytest.mark.skipif(find_spec("trl") is None, reason="needs trl"),
]
Run = Callable[[str], TrialRecord]


@pytest.fixture
def run(slot: Slot, tmp_path: Path) -> Run:
    """Runs a trial of the decoder with the given choices."""

    def run_one(choices: str) -> TrialRecord:
        chosen = {"precision": "bf16", "micro_batch": 8, **yaml.safe_load(choices)}
        return measured(slot, planned(tmp_path, DECODER, chosen, (1024, 512), steps=STEPS - 2))

    return run_one


def test_sft_on_a_gpu_has_the_losses_of_the_trainer(run: Run) -> None:
    losses = run("{loop: trainer}").steps["loss"]
    # bf16 rounds the logits of the two computations differently.
    assert run("{loop: trl_sft}").steps["loss"] == pytest.approx(losses, rel=5e-3)


def test_sft_on_a_gpu_has_the_peak_of_a_bare_script(run: Run, tmp_path: Path) -> None:
    record = run("{loop: trl_sft}")
    arguments = (json.dumps(DECODER["config"]), str(STEPS), str(tmp_path / "bare"))
    bare = peak_of_code(BARE, *arguments)
    assert record.measurements["peak_allocated_bytes"] == pytest.approx(bare, rel=0.01)


def test_sft_on_a_gpu_packs_with_a_kernel_of_variable_length(run: Run) -> None:
    for batching in ("padding_free", "packed"):
        record = run(f"{{loop: trl_sft, batching: {batching}}}")
        assert record.measurements["samples_per_second"] > 0
