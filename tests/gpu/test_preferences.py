"""On a GPU: DPO has the peak and the losses of a bare DPOTrainer, with and without an adapter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

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
has_adapter, precomputes = sys.argv[4] == "adapter", sys.argv[4] == "before"
columns = {}
for name in ("prompt_ids", "chosen_ids", "rejected_ids"):
    columns[name] = torch.randint(100, 30000, (4 * steps, 512)).tolist()
def made():
    with torch.device("cuda"):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
words = Tokenizer(models.WordLevel({"<pad>": 0}, unk_token="<pad>"))
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>")
arguments = trl.DPOConfig(
    output_dir=sys.argv[3], bf16=True, gradient_checkpointing=False, max_length=None,
    per_device_train_batch_size=4, max_steps=steps, report_to="none", save_strategy="no",
    learning_rate=5e-5, precompute_ref_log_probs=precomputes,
)
peft_config = None
if has_adapter:
    from peft import LoraConfig
    peft_config = LoraConfig(task_type="CAUSAL_LM", r=8, target_modules="all-linear")
class Bare(trl.DPOTrainer):
    def _prepare_dataset(self, dataset, *_):
        return dataset
    def train(self):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return super().train()
model = made()
trainer = Bare(
    model=model, ref_model=None if has_adapter or precomputes else made(), args=arguments,
    train_dataset=Dataset.from_dict(columns), processing_class=tokenizer, peft_config=peft_config,
)
trainer.train()
print(json.dumps(torch.cuda.max_memory_allocated()))
"""
CASES: Mapping[str, str] = {
    "model": "{loop: trl_dpo}",
    "adapter": "{loop: trl_dpo, adapter: {lora: {r: 8, target_modules: all-linear}}}",
    "before": "{loop: {trl_dpo: {precompute_ref_log_probs: true}}}",
}
"""Where the reference comes from -> the choices of the trial."""
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
    records: dict[str, TrialRecord] = {}
    with Slot(cpus=os.cpu_count() or 1) as slot:

        def run_one(choices: str) -> TrialRecord:
            if choices in records:
                return records[choices]
            path = folder / "sweep.yaml"
            content: dict[str, Any] = {
                "model": {"task": "causal-lm", "architecture": "llama", "config": MODEL},
                "data": {"synthetic": {"sequence_length": 1024, "samples": 512}},
                "baseline": {"precision": "bf16", "micro_batch": 4},
                "measure": {"warmup_steps": 2, "steps": STEPS - 2, "relative_error": 0},
            }
            text = json.dumps(content).removesuffix("}")
            path.write_text(f'{text}, "trials": [{choices}]}}')
            (trial,) = plan(load_config(path), has_gpu=True).trials
            record = slot.run(trial, 600.0)
            assert record.outcome is Outcome.OK, f"{record.reason}\n{record.provenance.log}"
            records[choices] = record
            return record

        yield run_one


@pytest.mark.parametrize("source", CASES)
def test_dpo_on_a_gpu_has_the_peak_of_a_bare_trainer(source: str, run: Run, tmp_path: Path) -> None:
    record = run(CASES[source])
    done = subprocess.run(
        [sys.executable, "-c", BARE, json.dumps(MODEL), str(STEPS), str(tmp_path), source],
        capture_output=True,
        text=True,
        env={**os.environ, **process_variables(4), "CI": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    bare = json.loads(done.stdout.splitlines()[-1])
    assert record.measurements["peak_allocated_bytes"] == pytest.approx(bare, rel=0.01)


def test_dpo_on_a_gpu_holds_the_reference_that_it_reads_back(run: Run) -> None:
    whole = run(CASES["model"]).measurements
    before = run(CASES["before"]).measurements
    assert whole["reference_model_bytes"] > 0
    saved = whole["peak_allocated_bytes"] - before["peak_allocated_bytes"]
    # The forward pass of the reference adds at most a little to the copy itself.
    assert saved >= 0.95 * whole["reference_model_bytes"]
    losses = before["loss_first"]
    assert whole["loss_first"] == pytest.approx(losses, rel=5e-3)


@pytest.mark.parametrize("technique", ["compile: inductor", "kernels: liger", "precision: fp16"])
def test_dpo_on_a_gpu_trains_with_other_techniques(technique: str, run: Run) -> None:
    record = run(f"{{loop: trl_dpo, {technique}}}")
    assert record.measurements["loss_first"] == pytest.approx(0.6931, rel=1e-2)
