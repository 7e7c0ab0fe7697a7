"""On a GPU: TRL's loops have the losses of the Trainer, and the peaks of bare TRL Trainers."""

import json
from collections.abc import Mapping
from importlib.util import find_spec

import pytest

from tests.gpu.shared import DECODER, gpu_marks, peak_of_code

STEPS = 6
BARE = """
import json, sys, torch, transformers, trl
from datasets import Dataset
from tokenizers import Tokenizer, models
architecture, steps, folder, case = json.loads(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
config = transformers.AutoConfig.for_model("llama", pad_token_id=0, **architecture)
def made():
    with torch.device("cuda"):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
words = Tokenizer(models.WordLevel({"<pad>": 0}, unk_token="<pad>"))
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>")
options = dict(
    output_dir=folder, bf16=True, gradient_checkpointing=False, max_length=None, max_steps=steps,
    report_to="none", save_strategy="no",
)
def ids(rows, length):
    return torch.randint(100, 30000, (rows * steps, length)).tolist()
class BareDPO(trl.DPOTrainer):
    def _prepare_dataset(self, dataset, *_):
        return dataset
    def train(self):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return super().train()
if case == "sft":
    trainer = trl.SFTTrainer(
        model=made(), args=trl.SFTConfig(per_device_train_batch_size=8, **options),
        train_dataset=Dataset.from_dict({"input_ids": ids(8, 1024)}), processing_class=tokenizer,
    )
else:
    peft_config = None
    if case == "adapter":
        from peft import LoraConfig
        peft_config = LoraConfig(task_type="CAUSAL_LM", r=8, target_modules="all-linear")
    arguments = trl.DPOConfig(
        per_device_train_batch_size=4, learning_rate=5e-5,
        precompute_ref_log_probs=case == "before", **options,
    )
    names = ("prompt_ids", "chosen_ids", "rejected_ids")
    rows = Dataset.from_dict({name: ids(4, 512) for name in names})
    trainer = BareDPO(
        model=made(), ref_model=made() if case == "model" else None, args=arguments,
        train_dataset=rows, processing_class=tokenizer, peft_config=peft_config,
    )
trainer.train()
print(json.dumps(torch.cuda.max_memory_allocated()))
"""
CASES: Mapping[str, str] = {
    "sft": "{loop: trl_sft}",
    "model": "{loop: trl_dpo, micro_batch: 4}",
    "adapter": "{loop: trl_dpo, micro_batch: 4, adapter: lora_r8_all_linear}",
    "before": "{loop: {trl_dpo: {precompute_ref_log_probs: true}}, micro_batch: 4}",
}
"""SFT, or where the reference of DPO comes from -> the choices of the trial."""
pytestmark = [*gpu_marks(), pytest.mark.skipif(find_spec("trl") is None, reason="needs trl")]


@pytest.mark.parametrize("case", CASES)
def test_trl_on_a_gpu_has_the_peak_of_a_bare_trainer(case, run, tmp_path):
    record = run(CASES[case])
    bare = peak_of_code(BARE, json.dumps(DECODER["config"]), str(STEPS), str(tmp_path), case)
    assert record.measurements["peak_allocated_bytes"] == pytest.approx(bare, rel=0.01)


def test_sft_on_a_gpu_has_the_losses_of_the_trainer(run):
    losses = run("{loop: trainer}").steps["loss"]
    # bf16 rounds the logits of the two computations differently.
    assert run(CASES["sft"]).steps["loss"] == pytest.approx(losses, rel=5e-3)


@pytest.mark.parametrize("batching", ["padding_free", "packed"])
def test_sft_on_a_gpu_packs_with_a_kernel_of_variable_length(batching, run):
    record = run(f"{{loop: trl_sft, batching: {batching}}}")
    assert record.measurements["samples_per_second"] > 0


def test_dpo_on_a_gpu_holds_the_reference_that_it_reads_back(run):
    whole = run(CASES["model"]).measurements
    before = run(CASES["before"]).measurements
    assert whole["reference_model_bytes"] > 0
    saved = whole["peak_allocated_bytes"] - before["peak_allocated_bytes"]
    # The forward pass of the reference adds at most a little to the copy itself.
    assert saved >= 0.95 * whole["reference_model_bytes"]
    assert whole["loss_first"] == pytest.approx(before["loss_first"], rel=5e-3)


@pytest.mark.parametrize("technique", ["compile: inductor", "kernels: liger", "precision: fp16"])
def test_dpo_on_a_gpu_trains_with_other_techniques(technique, run):
    record = run(f"{{loop: trl_dpo, micro_batch: 4, {technique}}}")
    assert record.measurements["loss_first"] == pytest.approx(0.6931, rel=1e-2)
