"""Trains LoRA on a frozen base by hand, with nothing of this project.

python tests/gpu/bare_base.py CASE [--checkpoint FOLDER]

A case is a Llama of 0.6 B parameters with random weights, trained for 12 steps on sequences of 1024
random tokens, in this process alone. A 4-bit base is loaded from a checkpoint that is written
first, as transformers loads one. The last line printed is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import (
    BitsAndBytesConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)

STEPS = 12
TOKENS = 1024
CONFIG = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 10,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "max_position_embeddings": 2048,
    "pad_token_id": 0,
}
CASES = ("16bit", "bnb_4bit", "bnb_8bit")


def base_model(case: str, folder: str) -> Any:
    """The frozen base on the GPU. A quantized one is loaded from a checkpoint in the folder."""
    config = LlamaConfig(**CONFIG)
    # A checkpoint is made on the CPU: what the GPU's allocator holds from before would change where
    # the loaded weights lie, and the unused end of a block counts as allocated.
    with torch.device("cuda" if case == "16bit" else "cpu"):
        model = LlamaForCausalLM._from_config(config, dtype=torch.bfloat16)
    if case == "16bit":
        return model
    model.save_pretrained(folder)
    del model
    quantization = BitsAndBytesConfig(load_in_8bit=True)
    if case == "bnb_4bit":
        quantization = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
    model = LlamaForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, quantization_config=quantization, device_map={"": 0}
    )
    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)


def random_dataset(samples: int) -> Dataset:
    """Random tokens, which are their own labels."""
    tokens = np.random.default_rng(42).integers(100, 30_000, (samples, TOKENS))
    dataset = Dataset.from_dict({"input_ids": tokens, "labels": tokens})
    dataset.set_format("pt")
    return dataset


def run(case: str, micro_batch: int, checkpoint: str | None) -> dict[str, Any]:
    """Train one case; its figures."""
    with tempfile.TemporaryDirectory() as folder:
        model = base_model(case, checkpoint or folder)
        adapter = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=micro_batch,
            bf16=True,
            log_level="error",
            report_to="none",
            save_strategy="no",
        )
        trainer = Trainer(
            model=get_peft_model(model, adapter),
            args=arguments,
            train_dataset=random_dataset(STEPS * micro_batch),
        )
        # What building and quantizing took does not count: a training has other peaks.
        torch.cuda.reset_peak_memory_stats()
        metrics = trainer.train().metrics
    return {
        "case": case,
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "train_samples_per_second": metrics["train_samples_per_second"],
        "train_loss": metrics["train_loss"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--checkpoint", help="folder in which to leave the base's checkpoint")
    options = parser.parse_args()
    figures = run(options.case, options.micro_batch, options.checkpoint)
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
