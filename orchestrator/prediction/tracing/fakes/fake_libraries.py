"""The libraries' code paths that refuse tensors without data, replaced while a step is traced."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from transformers.utils import import_utils

from orchestrator.prediction.tracing.allocation_trace import AllocationRecorder


def movable_modules() -> AbstractContextManager[Any]:
    """Let modules be moved and cast. PyTorch would swap tensors, and fake tensors refuse that."""
    return patch.object(torch.nn.Module, "_apply", _apply)


def usual_masks() -> AbstractContextManager[Any]:
    """Leave out masks of no effect, which transformers makes only of tensors without data."""
    return patch.object(import_utils, "is_fake_tensor", lambda _: False, create=True)


@contextmanager
def unused_libraries() -> Iterator[None]:
    """Let no library be imported only to see that nothing is of its classes: PEFT looks for
    torchao's weights, and accelerate for DeepSpeed's engine."""
    peft_asks = "peft.tuners.lora.torchao.is_torchao_available"
    accelerate_asks = "accelerate.utils.other.is_deepspeed_available"
    # Other versions may ask by other names.
    with (
        patch(peft_asks, lambda: "torchao" in sys.modules, create=True),
        patch(accelerate_asks, lambda: "deepspeed" in sys.modules, create=True),
    ):
        yield


def recorded_resizes(recorder: AllocationRecorder) -> AbstractContextManager[Any]:
    """Record storages that are resized, which no operator shows."""

    def resize(storage: torch.UntypedStorage, nbytes: int) -> None:
        recorder.resize(storage, nbytes)

    return patch.object(torch.UntypedStorage, "resize_", resize)


@contextmanager
def plain_paged_memory() -> Iterator[None]:
    """Let bitsandbytes make plain tensors where it asks CUDA for managed memory."""
    try:
        from bitsandbytes import functional
    except ImportError:
        yield
        return
    with (
        patch.object(functional, "get_paged", _plain_tensor),
        patch.object(functional, "fill", lambda *_: None),
    ):
        yield


def forget_bitsandbytes_overrides() -> None:
    """Drop bitsandbytes' list of parameters with 32-bit states, which belong to the last trial."""
    if "bitsandbytes" in sys.modules:
        sys.modules["bitsandbytes"].optim.GlobalOptimManager._instance = None


def leave_out_host_states(optimizer: Any, recorder: AllocationRecorder) -> list[int]:
    """Leave out states that the allocator does not hold; returns the bytes of paged ones, which
    bitsandbytes keeps in managed memory."""
    paged = []
    # torch.optim counts steps on the host unless its kernels are fused.
    counts_on_device = any(
        group.get("fused") or group.get("capturable") for group in optimizer.param_groups
    )
    for parameter, state in optimizer.state.items():
        # bitsandbytes keeps the states of smaller parameters in plain memory.
        is_paged = getattr(optimizer, "is_paged", False) and parameter.numel() >= 100_000
        for name, tensor in state.items():
            if not isinstance(tensor, torch.Tensor):
                continue
            if is_paged and name.startswith("state"):
                paged.append(tensor.nbytes)
                recorder.leave_out(tensor)
            elif name == "step" and not counts_on_device:
                recorder.leave_out(tensor)
    return paged


def _plain_tensor(
    *shape: int, dtype: torch.dtype = torch.float32, device: Any = None
) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def _apply(
    module: torch.nn.Module,
    function: Callable[[Any], Any],
    recurse: bool = True,
    replaced: dict[int, Any] | None = None,
) -> torch.nn.Module:
    """``Module._apply`` without its swap: new parameters take the old ones' places. ``replaced``
    has both by their ids, so that shared parameters stay shared."""
    replaced = {} if replaced is None else replaced
    if recurse:
        for child in module.children():
            _apply(child, function, replaced=replaced)
    for name, parameter in module._parameters.items():
        if parameter is None:
            continue
        if id(parameter) not in replaced:
            with torch.no_grad():
                new = function(parameter)
            if new is not parameter:
                new = torch.nn.Parameter(new, parameter.requires_grad)
            replaced |= {id(parameter): new, id(new): new}
        module._parameters[name] = replaced[id(parameter)]
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = function(buffer)
    return module
