"""The tensors that exist between steps: weights, gradients, optimizer states, ZeRO's buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_ZERO_ATTRIBUTES = {
    "bit16_groups_flat": "weights",
    "fp16_partitioned_groups_flat": "weights",
    "single_partition_of_fp32_groups": "32-bit master weights",
    "fp32_partitioned_groups_flat": "32-bit master weights",
    "averaged_gradients": "gradients",
    "grads_in_partition": "gradients",
    "grad_partitions_flat_buffer": "gradients",
    "accumulated_grads_in_cpu": "gradients",
}
"""Attribute of DeepSpeed's ZeRO optimizers (deepspeed/runtime/zero) -> what it holds. Their other
tensors are buffers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveTensor:
    """The storage of a tensor, and what it is for."""

    address: int
    nbytes: int
    device: str  # "cpu", "cuda", or "managed": CUDA moves managed memory between the two
    name: str


def live_tensors(model: Any, optimizer: Any, reference: Any = None) -> list[LiveTensor]:
    """Every storage of the model, its gradients and its optimizer, each once by its first name.
    ``reference`` is the frozen model of a preference training, if there is one."""
    by_address: dict[int, LiveTensor] = {}
    for name, value in _named_values(model, optimizer, reference):
        for tensor in nested_tensors(value):
            # Only the storage takes memory, which views share.
            storage = tensor.untyped_storage()
            address, nbytes = storage.data_ptr(), storage.nbytes()
            # bitsandbytes marks managed memory as paged.
            device = "managed" if getattr(tensor, "is_paged", False) else tensor.device.type
            if address and nbytes:  # ZeRO-3 leaves empty parameters in the model
                live_tensor = LiveTensor(address=address, nbytes=nbytes, device=device, name=name)
                by_address.setdefault(address, live_tensor)
    return list(by_address.values())


def _named_values(model: Any, optimizer: Any, reference: Any) -> Iterator[tuple[str, Any]]:
    """Names with their tensors, nested or not; of several names the more specific first."""
    for name, parameter in model.named_parameters():
        kind = "LoRA adapters" if "lora_" in name else "weights"  # peft's naming
        yield kind, parameter.data
        yield kind, getattr(parameter, "ds_tensor", None)  # ZeRO-3's partition
        yield "gradients", parameter.grad
    yield "weights", list(model.buffers())
    if reference is not None:
        tensors = (*reference.parameters(), *reference.buffers())
        yield "reference model", [tensor.data for tensor in tensors]
    layers = list(optimizer_layers(optimizer))
    for layer in layers:
        for attribute, name in _ZERO_ATTRIBUTES.items():
            yield name, getattr(layer, attribute, None)
    for layer in layers:
        # A plain optimizer's groups hold the model's parameters, which have names already. With
        # DeepSpeed the innermost optimizer's groups hold 32-bit copies, which are new here.
        for group in getattr(layer, "param_groups", None) or ():
            yield "32-bit master weights", group.get("params")
        yield "optimizer states", getattr(layer, "state", None)
        yield "optimizer states", getattr(layer, "name2qmap", None)  # bitsandbytes' code books
    for layer in layers:
        if hasattr(layer, "reduce_bucket_size"):  # one of DeepSpeed's ZeRO optimizers
            yield "ZeRO buffers", vars(layer)


def optimizer_layers(optimizer: Any) -> Iterator[Any]:
    """An optimizer and those that it wraps (Accelerate's, DeepSpeed's), outermost first."""
    while optimizer is not None:
        yield optimizer
        optimizer = getattr(optimizer, "optimizer", None)


def nested_tensors(value: Any, depth: int = 4) -> Iterator[torch.Tensor]:
    """The plain tensors in nested containers; a quantised one (torchao) is opened."""
    import torch

    if isinstance(value, torch.Tensor):
        if hasattr(value, "__tensor_flatten__"):
            inner_names, _ = value.__tensor_flatten__()
            yield from nested_tensors([getattr(value, name) for name in inner_names], depth)
        else:
            yield value
    elif depth and isinstance(value, (Mapping, list, tuple, set)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from nested_tensors(item, depth - 1)
