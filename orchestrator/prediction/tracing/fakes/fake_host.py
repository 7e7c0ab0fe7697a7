"""Activations that wait for the backward pass on the host, by the code that moves them on a GPU.

What stands for the host's memory is the device "meta", which is in no memory.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch.autograd import graph


@contextmanager
def host_memory() -> Iterator[None]:
    """A context in which PyTorch and TRL find tensors of the CPU on a GPU, beside a host."""
    stand_in = SimpleNamespace(**{**vars(torch), **_on_gpu()})
    with ExitStack() as entered:
        entered.enter_context(patch.object(graph, "torch", stand_in))
        entered.enter_context(patch.object(torch.cpu.Stream, "synchronize", _nothing, create=True))
        entered.enter_context(patch.object(torch.Tensor, "record_stream", _nothing))
        # TRL asks by addresses which tensors are views of one, or of a parameter.
        entered.enter_context(patch.object(torch.UntypedStorage, "data_ptr", _address))
        if find_spec("trl") is not None:
            from trl.models import activation_offloading

            entered.enter_context(patch.object(activation_offloading, "torch", stand_in))
        yield


def _nothing(*_: Any) -> None:
    """Waiting for a stream takes no memory."""


def _address(storage: Any) -> int:
    return int(storage._cdata)


def _on_host(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def made(*args: Any, pin_memory: bool = False, device: Any = None, **kwargs: Any) -> Any:
        return make(*args, device="meta", **kwargs)

    return made


def _on_gpu() -> dict[str, Any]:
    """What the modules that move activations take for parts of torch."""
    device = torch.device("cpu")
    streams = {name: getattr(torch.cpu, name) for name in ("Stream", "stream", "current_stream")}
    module = SimpleNamespace(**streams, empty_cache=_nothing)
    return {
        "empty": _on_host(torch.empty),
        "empty_like": _on_host(torch.empty_like),
        "accelerator": SimpleNamespace(current_accelerator=lambda: device),
        "get_device_module": lambda _: module,
    }
