"""What the live objects of a training hold from step to step, by the addresses of their storages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_ZERO = {
    "bit16_groups_flat": "weights",
    "fp16_partitioned_groups_flat": "weights",
    "single_partition_of_fp32_groups": "32-bit master weights",
    "fp32_partitioned_groups_flat": "32-bit master weights",
    "averaged_gradients": "gradients",
    "grads_in_partition": "gradients",
    "grad_partitions_flat_buffer": "gradients",
    "accumulated_grads_in_cpu": "gradients",
}
"""Attribute of DeepSpeed's ZeRO optimizers -> what it holds; every other tensor of theirs is a buffer.

Source: deepspeed/runtime/zero/stage_1_and_2.py and stage3.py.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resident:
    """A storage, and what it is for. Managed memory is CUDA's to move: it belongs to no device."""

    address: int
    nbytes: int
    device: str
    """"cpu", "cuda", or "managed"."""
    name: str


def residents(model: Any, optimizer: Any) -> list[Resident]:
    """Weights, gradients there are at the moment, and what optimizer and engine keep; every storage once."""
    found: dict[int, Resident] = {}
    for name, tensor in _named(model, optimizer):
        storage = tensor.untyped_storage()
        if storage.nbytes() and storage.data_ptr():
            device = "managed" if getattr(tensor, "is_paged", False) else tensor.device.type
            made = Resident(
                address=storage.data_ptr(), nbytes=storage.nbytes(), device=device, name=name
            )
            found.setdefault(made.address, made)
    return list(found.values())


def _named(model: Any, optimizer: Any) -> Iterator[tuple[str, torch.Tensor]]:
    for name, parameter in model.named_parameters():
        kind = "LoRA adapters" if "lora_" in name else "weights"
        partition = getattr(parameter, "ds_tensor", None)  # of ZeRO-3
        gradient = ("gradients", parameter.grad)
        for named in ((kind, parameter.data), (kind, partition), gradient):
            yield from ((named[0], tensor) for tensor in tensors(named[1]))
    yield from (("weights", tensor) for buffer in model.buffers() for tensor in tensors(buffer))
    layers = list(_layers(optimizer))
    for layer in layers:
        for attribute, name in _ZERO.items():
            yield from ((name, tensor) for tensor in tensors(getattr(layer, attribute, None)))
    for layer in layers:
        # Stages other than these keep their parameters in the innermost optimizer's groups: masters of 32 bits.
        groups = getattr(layer, "param_groups", None) or ()
        yield from (
            ("32-bit master weights", p) for group in groups for p in tensors(group.get("params"))
        )
        yield from (
            ("optimizer states", tensor) for tensor in tensors(getattr(layer, "state", None))
        )
        yield from (
            ("optimizer states", tensor) for tensor in tensors(getattr(layer, "name2qmap", None))
        )
    for layer in layers:
        if hasattr(layer, "reduce_bucket_size"):
            yield from (("ZeRO buffers", tensor) for tensor in tensors(vars(layer)))


def _layers(optimizer: Any) -> Iterator[Any]:
    """An optimizer and those that it wraps (Accelerate's, DeepSpeed's), the outermost first."""
    while optimizer is not None:
        yield optimizer
        optimizer = getattr(optimizer, "optimizer", None)


def tensors(value: Any, depth: int = 4) -> Iterator[torch.Tensor]:
    """The plain tensors in nested lists and mappings; quantised subclasses opened into those that they hold."""
    import torch

    if isinstance(value, torch.Tensor):
        if hasattr(value, "__tensor_flatten__"):
            yield from tensors(
                [getattr(value, name) for name in value.__tensor_flatten__()[0]], depth
            )
        else:
            yield value
    elif depth and isinstance(value, (Mapping, list, tuple, set)):
        inner: Iterable[Any] = value.values() if isinstance(value, Mapping) else value
        for one in inner:
            yield from tensors(one, depth - 1)
