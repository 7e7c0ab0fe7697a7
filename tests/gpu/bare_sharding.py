"""Trains the decoder of configs/two_gpus.yaml by hand, with nothing of this project.

torchrun --standalone --nproc-per-node 2 -m tests.gpu.bare_sharding CASE
    [--micro-batch N] [--tiny] [--wait]

A case is how the GPUs share the states. The last line printed, by rank 0, is a JSON object: the
peaks of all ranks, and the time of each counted step. ``--tiny`` is for a CPU.
"""

import argparse
import json
import os
import sys
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import Qwen2Config, Qwen2ForCausalLM, Trainer, TrainingArguments, set_seed

from tests.gpu import bare
from tests.gpu.bare import StepClock

STEPS = 20  # of which bare.WARMUP_STEPS do not count
TOKENS = 2048
CONFIG = {
    "vocab_size": 151936,
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "max_position_embeddings": TOKENS,
    "tie_word_embeddings": True,
}
READY = "waiting"
"""What a script prints when it has imported everything."""
TINY = {"vocab_size": 256, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2}


def zero(stage: int) -> dict[str, Any]:
    config = {key: value for key, value in bare.ZERO2_OFFLOAD.items() if key != "optimizer"}
    return {"deepspeed": {**config, "zero_optimization": {"stage": stage}}}


def fsdp2(*, reshard: bool) -> dict[str, Any]:
    return {"fsdp": True, "fsdp_config": {"version": 2, "reshard_after_forward": reshard}}


CASES: dict[str, dict[str, Any]] = {
    "ddp": {},
    "fsdp2_grad_op": fsdp2(reshard=False),
    "fsdp2_full": fsdp2(reshard=True),
    "zero1": zero(1),
    "zero2": zero(2),
    "zero3": zero(3),
}
"""Name -> training arguments."""


def run(case: str, micro_batch: int, *, tiny: bool) -> dict[str, Any]:
    clock = StepClock()
    tokens = 16 if tiny else TOKENS
    with TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=micro_batch,
            bf16=True,
            log_level="error",
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
            **CASES[case],
        )
        set_seed(42)
        with torch.device(arguments.device):
            # Under ZeRO-3, transformers partitions the weights as they are made.
            config = Qwen2Config(**CONFIG | (TINY if tiny else {}))
            model = Qwen2ForCausalLM._from_config(config, dtype=torch.float32)
        samples = STEPS * micro_batch * arguments.world_size
        rows = np.random.default_rng(42).integers(0, config.vocab_size, (samples, tokens))
        dataset = Dataset.from_dict({"input_ids": rows, "labels": rows})
        dataset.set_format("pt")
        Trainer(model=model, args=arguments, train_dataset=dataset, callbacks=[clock]).train()
    return {
        "case": case,
        "rank_peak_allocated_bytes": gathered(torch.cuda.max_memory_allocated()),
        "rank_peak_reserved_bytes": gathered(torch.cuda.max_memory_reserved()),
        "step_seconds": clock.counted_seconds(),
    }


def gathered(value: int) -> list[int]:
    """The value of each rank."""
    values: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--micro-batch", type=int, default=2, metavar="N")
    parser.add_argument("--tiny", action="store_true", help="a two-layer model and short rows")
    parser.add_argument("--wait", action="store_true", help="train once standard input ends")
    options = parser.parse_args()
    if "deepspeed" in CASES[options.case]:
        import deepspeed  # noqa: F401  # as all other libraries: before it waits
    if options.wait:
        print(READY, flush=True)
        sys.stdin.read()
    figures = run(options.case, options.micro_batch, tiny=options.tiny)
    if os.environ["RANK"] == "0":
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
