"""Trains a decoder by hand, with nothing of this project: LoRA on a frozen base, or unusual rows.

python -m tests.gpu.bare_decoder CASE [--micro-batch N] [--checkpoint FOLDER]

A case is a Llama of 0.6 B parameters with random weights, trained in bf16 for 12 steps, in this
process alone. A quantized base is loaded from a checkpoint that is written first, as transformers
loads one. The last line printed is a JSON object.
"""

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
    DataCollatorWithFlattening,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
    set_seed,
)

STEPS = 12
TOKENS = 1024
LONG = 8192
CONFIG = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 10,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "max_position_embeddings": 16384,
    "pad_token_id": 0,
}
BASES = ("16bit", "bnb_4bit", "bnb_8bit")
ROWS = ("long", "long_checkpoint", "padding_free")


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


def model_of(case: str, folder: str) -> Any:
    """The model that is trained: adapters on a base, or all of it in 32 bits."""
    if case in BASES:
        adapter = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
        return get_peft_model(base_model(case, folder), adapter)
    with torch.device("cuda"):
        return LlamaForCausalLM._from_config(LlamaConfig(**CONFIG), dtype=torch.float32)


def unequal_rows() -> list[list[int]]:
    """Rows of 64 to 2,000 tokens."""
    generator = np.random.default_rng(7)
    lengths = generator.integers(64, 2000, 64)
    return [generator.integers(100, 30_000, length).tolist() for length in lengths]


def dataset_of(case: str, samples: int) -> Dataset:
    """The rows, which are their own labels."""
    rows: Any = unequal_rows()
    if case != "padding_free":
        length = LONG if case in ROWS else TOKENS
        rows = np.random.default_rng(42).integers(100, 30_000, (samples, length))
    dataset = Dataset.from_dict({"input_ids": rows, "labels": rows})
    dataset.set_format("pt")
    return dataset


def figures_of(
    model: Any,
    dataset: Any,
    *,
    steps: int,
    micro_batch: int,
    collator: Any = None,
    checkpointing: bool = False,
) -> dict[str, Any]:
    """Train with the Trainer in bf16; the figures of the training alone."""
    options: dict[str, Any] = {}
    if checkpointing:
        options = {
            "gradient_checkpointing": True,
            "gradient_checkpointing_kwargs": {"use_reentrant": False},
        }
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                max_steps=steps,
                per_device_train_batch_size=micro_batch,
                bf16=True,
                log_level="error",
                report_to="none",
                save_strategy="no",
                **options,
            ),
            train_dataset=dataset,
            data_collator=collator,
        )
        # What building and quantizing took does not count: a training has other peaks.
        torch.cuda.reset_peak_memory_stats()
        metrics = trainer.train().metrics
    return {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "train_samples_per_second": metrics["train_samples_per_second"],
        "train_loss": metrics["train_loss"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("case", choices=(*BASES, *ROWS))
    parser.add_argument("--micro-batch", type=int, default=2)
    parser.add_argument("--checkpoint", help="folder in which to leave the base's checkpoint")
    options = parser.parse_args()
    set_seed(42)
    with tempfile.TemporaryDirectory() as folder:
        figures = figures_of(
            model_of(options.case, options.checkpoint or folder),
            dataset_of(options.case, STEPS * options.micro_batch),
            steps=STEPS,
            micro_batch=options.micro_batch,
            collator=DataCollatorWithFlattening() if options.case == "padding_free" else None,
            checkpointing=options.case == "long_checkpoint",
        )
    print(json.dumps({"case": options.case, **figures}), flush=True)


if __name__ == "__main__":
    main()
