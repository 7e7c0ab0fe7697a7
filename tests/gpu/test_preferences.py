"""On a GPU: DPO has the peak and the losses of a bare DPOTrainer, with and without an adapter."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
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
    *gpu_marks(),
    pytest.mark.skipif(find_spec("trl") is None, reason="needs trl"),
]
Run = Callable[[str], TrialRecord]


@pytest.fixture(scope="module")
def run(slot: Slot, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a trial of the decoder with the given choices, each once."""
    folder = tmp_path_factory.mktemp("config")

    @functools.cache
    def run_once(choices: str) -> TrialRecord:
        chosen = {"precision": "bf16", "micro_batch": 4, **yaml.safe_load(choices)}
        return measured(slot, planned(folder, DECODER, chosen, (1024, 512), steps=STEPS - 2))

    return run_once


@pytest.mark.parametrize("source", CASES)
def test_dpo_on_a_gpu_has_the_peak_of_a_bare_trainer(source: str, run: Run, tmp_path: Path) -> None:
    record = run(CASES[source])
    arguments = (json.dumps(DECODER["config"]), str(STEPS), str(tmp_path), source)
    bare = peak_of_code(BARE, *arguments)
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
