"""The facts about a training that all dialects share, and the configuration that they make."""

from collections.abc import Mapping
from typing import Any

Facts = Mapping[str, Any]

_FACTS = {
    "model": "model config",
    "model.task": "task",
    "axes.base": "quantized bits bnb",
    "data.synthetic.sequence_length": "length",
    "data": "data",
    "data.file": "file",
    "data.synthetic.image_size": "image_size image_pixels",
    "axes.micro_batch": "rows_of_a_sample micro_batch",
    "axes.batching": "packing packed",
    "axes.accumulation": "accumulation",
    "axes.precision": "bf16 fp16 tf32 fp8 weights",
    "axes.optimizer": "optimizer optimizer_layerwise",
    "axes.activations": "checkpointing reentrant offloading recomputes_beside_adapter",
    "axes.attention": "attention",
    "axes.experts": "experts",
    "axes.kernels": "liger kernels",
    "axes.loss": "loss eaft",
    "axes.adapter": "adapter lora oft",
    "axes.trainable": "trainable",
    "axes.vision": "vision",
    "axes.qat": "qat",
    "axes.loop": "loop preference",
    "axes.compile": "compile",
    "axes.dataloader": "workers pin_memory",
    "axes.offload": "zero fsdp_offload",
    "deepspeed": "deepspeed",
    "measure.seed": "seed",
    "training_arguments": "arguments",
}
OURS = {fact: key for key, facts in _FACTS.items() for fact in facts.split()}
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
