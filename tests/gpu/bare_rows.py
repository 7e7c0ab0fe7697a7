"""Trains on long and on unequal rows by hand, with nothing of this project.

python tests/gpu/bare_rows.py CASE

A case is a Llama of 0.6 B parameters with random weights, trained in bf16 for 12 steps, in this
process alone. The last line printed is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import (
    DataCollatorWithFlattening,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
    set_seed,
)

STEPS = 12
MICRO_BATCH = 2
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
CASES = ("long", "long_checkpoint", "padding_free")


def unequal_rows() -> list[list[int]]:
    """Rows of 64 to 2,000 tokens."""
    generator = np.random.default_rng(7)
    lengths = generator.integers(64, 2000, 64)
    return [generator.integers(100, 30_000, length).tolist() for length in lengths]


def dataset_of(case: str) -> Dataset:
    """The rows, which are their own labels."""
    if case == "padding_free":
        rows: Any = unequal_rows()
    else:
        rows = np.random.default_rng(42).integers(100, 30_000, (STEPS * MICRO_BATCH, LONG))
    dataset = Dataset.from_dict({"input_ids": rows, "labels": rows})
    dataset.set_format("pt")
    return dataset


def run(case: str) -> dict[str, Any]:
    """Train one case; its figures."""
    set_seed(42)
    with torch.device("cuda"):
        model = LlamaForCausalLM._from_config(LlamaConfig(**CONFIG), dtype=torch.float32)
    checkpointing: dict[str, Any] = {}
    if case == "long_checkpoint":
        checkpointing = {
            "gradient_checkpointing": True,
            "gradient_checkpointing_kwargs": {"use_reentrant": False},
        }
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                max_steps=STEPS,
                per_device_train_batch_size=MICRO_BATCH,
                bf16=True,
                log_level="error",
                report_to="none",
                save_strategy="no",
                **checkpointing,
            ),
            train_dataset=dataset_of(case),
            data_collator=DataCollatorWithFlattening() if case == "padding_free" else None,
        )
        torch.cuda.reset_peak_memory_stats()
        metrics = trainer.train().metrics
    return {
        "case": case,
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "train_loss": metrics["train_loss"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("case", choices=CASES)
    print(json.dumps(run(parser.parse_args().case)), flush=True)


if __name__ == "__main__":
    main()
