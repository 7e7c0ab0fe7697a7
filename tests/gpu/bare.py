"""Trains each case by hand, as the Hugging Face guide does, with nothing of this project.

python tests/gpu/bare.py CASE [--samples N] [--tiny]

A case is BERT-large with random weights, trained for one epoch on 512 sequences of 512 random
tokens, in this process alone. The last line printed is a JSON object. ``--tiny`` shrinks the model
and the sequences so that a CPU can run it.
"""

import argparse
import dataclasses
import json
import os
import socket
import time
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

WARMUP_STEPS = 8

BERT_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
BERT_TINY = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
}

ZERO2_OFFLOAD = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "zero_allow_untested_optimizer": True,
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto"},
    "optimizer": {
        "type": "AdamW",
        "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"},
    },
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}},
}


def checkpointing() -> dict[str, Any]:
    """Arguments that turn gradient checkpointing on, as the installed transformers names them."""
    known = {field.name for field in dataclasses.fields(TrainingArguments)}
    name = (
        "activation_checkpointing"
        if "activation_checkpointing" in known
        else "gradient_checkpointing"
    )
    return {name: True, f"{name}_kwargs": {"use_reentrant": False}}


def lora(model: torch.nn.Module) -> torch.nn.Module:
    """The model with LoRA adapters of rank 8 on query and value."""
    from peft import LoraConfig, get_peft_model

    return get_peft_model(
        model, LoraConfig(r=8, target_modules=["query", "value"], task_type="SEQ_CLS")
    )


BF16 = {"per_device_train_batch_size": 16, "bf16": True}
CASES: dict[str, dict[str, Any]] = {
    "fp32_bs4": {"per_device_train_batch_size": 4},
    "bf16_bs16": BF16,
    "bf16_bs64_checkpoint": {**BF16, "per_device_train_batch_size": 64, **checkpointing()},
    "adamw_bnb_8bit": {**BF16, "optim": "adamw_bnb_8bit"},
    "adafactor": {**BF16, "optim": "adafactor"},
    "lora": BF16,
    "zero2_offload": {**BF16, "deepspeed": ZERO2_OFFLOAD},
}
"""Name -> training arguments."""


class StepClock(TrainerCallback):
    """Notes when each optimizer step ends, without synchronising the device."""

    def __init__(self) -> None:
        self.marks: list[Any] = []
        self.first_counted = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # With a large batch an epoch has few steps: then its second half counts.
        self.first_counted = min(WARMUP_STEPS, state.max_steps // 2)
        self._mark()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._mark()

    def _mark(self) -> None:
        if not torch.cuda.is_available():
            self.marks.append(time.perf_counter())
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.marks.append(event)

    def counted_seconds(self) -> list[float]:
        """Seconds from each step's end to the next, by the device's clock if there is one."""
        counted = pairwise(self.marks[self.first_counted :])
        if not torch.cuda.is_available():
            return [end - begin for begin, end in counted]
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) / 1000 for begin, end in counted]


def random_dataset(samples: int, length: int) -> Dataset:
    """Random token ids clear of BERT's special tokens, with one of two labels each."""
    rng = np.random.default_rng(42)
    dataset = Dataset.from_dict(
        {
            "input_ids": rng.integers(100, 30_000, (samples, length)),
            "labels": rng.integers(0, 2, samples),
        }
    )
    dataset.set_format("pt")
    return dataset


def prepare_deepspeed() -> None:
    """Set what DeepSpeed's launcher would set."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launched = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    for name, value in launched.items():
        os.environ.setdefault(name, value)
    if torch.cuda.is_available():
        # A list with "10.0a" in it breaks the build of DeepSpeed's ops.
        major, minor = torch.cuda.get_device_capability()
        os.environ["TORCH_CUDA_ARCH_LIST"] = f"{major}.{minor}"
    else:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")


def run(case: str, *, samples: int, tiny: bool) -> dict[str, Any]:
    if case == "zero2_offload":
        prepare_deepspeed()
    clock = StepClock()
    with TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=1,
            log_level="error",
            report_to="none",
            save_strategy="no",
            use_cpu=not torch.cuda.is_available(),
            **CASES[case],
        )
        model: torch.nn.Module = BertForSequenceClassification(
            BertConfig(**(BERT_TINY if tiny else BERT_LARGE))
        )
        if case == "lora":
            model = lora(model)
        dataset = random_dataset(samples, 32 if tiny else 512)
        trainer = Trainer(model=model, args=arguments, train_dataset=dataset, callbacks=[clock])
        metrics = trainer.train().metrics
    counted = clock.counted_seconds()
    return {
        "case": case,
        # Without a GPU there is nothing allocated on one.
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "train_runtime": metrics["train_runtime"],
        "samples_per_second": len(counted) * arguments.train_batch_size / sum(counted),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--samples", type=int, default=512, help="of the epoch")
    parser.add_argument("--tiny", action="store_true", help="a two-layer model and short sequences")
    options = parser.parse_args()
    print(json.dumps(run(options.case, samples=options.samples, tiny=options.tiny)), flush=True)


if __name__ == "__main__":
    main()
