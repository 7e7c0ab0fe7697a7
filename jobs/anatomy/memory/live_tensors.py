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
"""Attribute of DeepSpeed's ZeRO optimizers -> what it holds. All their other tensors are buffers.

Source: deepspeed/runtime/zero/stage_1_and_2.py and stage3.py.
"""
_MASTER = "32-bit master weights"
_STATES = "optimizer states"

NamedTensor = tuple[str, "torch.Tensor"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveTensor:
    """The storage of a tensor, and what it is for."""

    address: int
    nbytes: int
    device: str
    """"cpu", "cuda", or "managed": CUDA moves managed memory between the two."""
    name: str


def live_tensors(model: Any, optimizer: Any, reference: Any = None) -> list[LiveTensor]:
    """Every storage that the model, its gradients and its optimizer hold now, each once.

    ``reference`` is the frozen model of a preference training, if there is one. If a storage has
    several uses, the first name that ``_named_tensors`` gives it counts.
    """
    by_address: dict[int, LiveTensor] = {}
    for name, tensor in _named_tensors(model, optimizer, reference):
        # Views share a storage, and only the storage takes memory.
        storage = tensor.untyped_storage()
        if storage.nbytes() == 0 or storage.data_ptr() == 0:
            continue  # ZeRO-3 leaves such empty parameters in the model
        # bitsandbytes marks managed memory as paged.
        device = "managed" if getattr(tensor, "is_paged", False) else tensor.device.type
        address, nbytes = storage.data_ptr(), storage.nbytes()
        live_tensor = LiveTensor(address=address, nbytes=nbytes, device=device, name=name)
        by_address.setdefault(address, live_tensor)
    return list(by_address.values())


def _named_tensors(model: Any, optimizer: Any, reference: Any) -> Iterator[NamedTensor]:
    """Every tensor with its name. Some tensors come twice: the more specific name comes first."""
    yield from _model_tensors(model)
    if reference is not None:
        for tensor in (*reference.parameters(), *reference.buffers()):
            yield from _named("reference model", tensor.data)
    layers = list(optimizer_layers(optimizer))
    for layer in layers:
        for attribute, name in _ZERO_ATTRIBUTES.items():
            yield from _named(name, getattr(layer, attribute, None))
    for layer in layers:
        yield from _optimizer_tensors(layer)
    for layer in layers:
        if hasattr(layer, "reduce_bucket_size"):  # one of DeepSpeed's ZeRO optimizers
            yield from _named("ZeRO buffers", vars(layer))


def _model_tensors(model: Any) -> Iterator[NamedTensor]:
    for name, parameter in model.named_parameters():
        kind = "LoRA adapters" if "lora_" in name else "weights"  # peft's naming
        yield from _named(kind, parameter.data)
        yield from _named(kind, getattr(parameter, "ds_tensor", None))  # ZeRO-3's partition
        yield from _named("gradients", parameter.grad)
    for buffer in model.buffers():
        yield from _named("weights", buffer)


def _optimizer_tensors(layer: Any) -> Iterator[NamedTensor]:
    # A plain optimizer's groups hold the model's parameters, which have names already. With
    # DeepSpeed the innermost optimizer's groups hold 32-bit copies, which are new here.
    for group in getattr(layer, "param_groups", None) or ():
        yield from _named(_MASTER, group.get("params"))
    yield from _named(_STATES, getattr(layer, "state", None))
    yield from _named(_STATES, getattr(layer, "name2qmap", None))  # bitsandbytes' code books


def optimizer_layers(optimizer: Any) -> Iterator[Any]:
    """An optimizer and the optimizers that it wraps, outermost first.

    Accelerate and DeepSpeed wrap the optimizer that they are given.
    """
    while optimizer is not None:
        yield optimizer
        optimizer = getattr(optimizer, "optimizer", None)


def _named(name: str, value: Any) -> Iterator[NamedTensor]:
    for tensor in nested_tensors(value):
        yield name, tensor


def nested_tensors(value: Any, depth: int = 4) -> Iterator[torch.Tensor]:
    """The plain tensors in nested lists and mappings, down to ``depth`` levels.

    A quantised subclass (torchao) is opened into the tensors that it holds.
    """
    import torch

    if isinstance(value, torch.Tensor):
        # PyTorch's protocol for tensor subclasses.
        if hasattr(value, "__tensor_flatten__"):
            inner_names, _ = value.__tensor_flatten__()
            yield from nested_tensors([getattr(value, name) for name in inner_names], depth)
        else:
            yield value
    elif depth and isinstance(value, (Mapping, list, tuple, set)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from nested_tensors(item, depth - 1)
