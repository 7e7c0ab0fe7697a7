"""The facts about a training that all dialects share, and the configuration that they make."""

from collections.abc import Mapping
from typing import Any

Facts = Mapping[str, Any]

OURS: Mapping[str, str] = {
    "model": "model",
    "task": "model.task",
    "quantized": "axes.base",
    "length": "data.synthetic.sequence_length",
    "data": "data",
    "file": "data.file",
    "config": "model",
    "image_size": "data.synthetic.image_size",
    "image_pixels": "data.synthetic.image_size",
    "rows_of_a_sample": "axes.micro_batch",
    "packing": "axes.batching",
    "packed": "axes.batching",
    "micro_batch": "axes.micro_batch",
    "accumulation": "axes.accumulation",
    "bf16": "axes.precision",
    "fp16": "axes.precision",
    "tf32": "axes.precision",
    "fp8": "axes.precision",
    "weights": "axes.precision",
    "optimizer": "axes.optimizer",
    "optimizer_layerwise": "axes.optimizer",
    "checkpointing": "axes.activations",
    "reentrant": "axes.activations",
    "offloading": "axes.activations",
    "recomputes_beside_adapter": "axes.activations",
    "attention": "axes.attention",
    "experts": "axes.experts",
    "liger": "axes.kernels",
    "kernels": "axes.kernels",
    "loss": "axes.loss",
    "eaft": "axes.loss",
    "adapter": "axes.adapter",
    "lora": "axes.adapter",
    "oft": "axes.adapter",
    "bits": "axes.base",
    "bnb": "axes.base",
    "trainable": "axes.trainable",
    "vision": "axes.vision",
    "qat": "axes.qat",
    "loop": "axes.loop",
    "preference": "axes.loop",
    "compile": "axes.compile",
    "workers": "axes.dataloader",
    "pin_memory": "axes.dataloader",
    "zero": "axes.offload",
    "fsdp_offload": "axes.offload",
    "deepspeed": "deepspeed",
    "seed": "measure.seed",
    "arguments": "training_arguments",
}
"""First word of a fact -> the key of our configuration that it decides. A fact with a dot is a
parameter: ``lora.r`` is the rank of ``axes.adapter``."""


def ours(fact: str) -> str:
    """The key of our configuration that a fact decides."""
    first, _, rest = fact.partition(".")
    return f"{OURS[first]}.{rest}" if first == "arguments" else OURS[first]


def below(facts: Facts, prefix: str) -> dict[str, Any]:
    """The parameters under a fact: ``lora`` -> ``{"r": 16}``."""
    start = f"{prefix}."
    return {name.removeprefix(start): facts[name] for name in facts if name.startswith(start)}
