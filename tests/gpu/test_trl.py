"""On a GPU: TRL's loop has the losses of the Trainer, and the peak of a bare SFTTrainer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from jobs.isolation.slot import Slot
from jobs.node import nvml
from jobs.node.process_variables import process_variables
from jobs.record import Outcome, TrialRecord
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan

MODEL = {
    "vocab_size": 32000,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": True,
}
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
    pytest.mark.gpu,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not nvml.visible_uuids(), reason="needs a CUDA device"),
    pytest.mark.skipif(find_spec("trl") is None, reason="needs trl"),
]
Run = Callable[[str], TrialRecord]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs a trial of the decoder with the given choices; one slot for the whole file."""
    folder = tmp_path_factory.mktemp("config")
    with Slot(cpus=os.cpu_count() or 1) as slot:

        def run_one(choices: str) -> TrialRecord:
            path = folder / "sweep.yaml"
            content = {
                "model": {"task": "causal-lm", "architecture": "llama", "config": MODEL},
                "data": {"synthetic": {"sequence_length": 1024, "samples": 512}},
                "baseline": {"precision": "bf16", "micro_batch": 8},
                "measure": {"warmup_steps": 2, "steps": STEPS - 2, "relative_error": 0},
            }
            text = json.dumps(content).removesuffix("}")
            path.write_text(f'{text}, "trials": [{choices}]}}')
            (trial,) = plan(load_config(path), has_gpu=True).trials
            record = slot.run(trial, 600.0)
            assert record.outcome is Outcome.OK, f"{record.reason}\n{record.provenance.log}"
            return record

        yield run_one


def test_sft_on_a_gpu_has_the_losses_of_the_trainer(run: Run) -> None:
    losses = run("{loop: trainer}").steps["loss"]
    # bf16 rounds the logits of the two computations differently.
    assert run("{loop: trl_sft}").steps["loss"] == pytest.approx(losses, rel=5e-3)


def test_sft_on_a_gpu_has_the_peak_of_a_bare_script(run: Run, tmp_path: Path) -> None:
    record = run("{loop: trl_sft}")
    done = subprocess.run(
        [sys.executable, "-c", BARE, json.dumps(MODEL), str(STEPS), str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, **process_variables(4), "CI": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    bare = json.loads(done.stdout.splitlines()[-1])
    assert record.measurements["peak_allocated_bytes"] == pytest.approx(bare, rel=0.01)


def test_sft_on_a_gpu_packs_with_a_kernel_of_variable_length(run: Run) -> None:
    for batching in ("padding_free", "packed"):
        record = run(f"{{loop: trl_sft, batching: {batching}}}")
        assert record.measurements["samples_per_second"] > 0
