"""Points between the stacks of a model's layers, in the forward and the backward pass."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves


def report_stacks(model: nn.Module, report: Callable[[], None]) -> None:
    """Call ``report`` behind each stack of layers in a forward pass, and before each in a backward
    pass. An encoder and a decoder are two stacks, and so are a vision tower and its decoder."""

    # A function, because a copy of the model keeps it; it would copy an object with its tracker.
    def behind(_module: nn.Module, _args: Any, output: Any) -> None:
        report()
        tensors = (own for own in tree_leaves(output) if isinstance(own, torch.Tensor))
        last = next(tensors, None)
        if last is not None and last.grad_fn is not None:
            last.grad_fn.register_prehook(lambda _: report())

    for module in stacks(model):
        module.register_forward_hook(behind)


def stacks(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost modules with a list of layers."""
    children = list(module.children())
    if any(isinstance(own, nn.ModuleList) and len(own) > 1 for own in children):
        yield module
    else:
        for own in children:
            yield from stacks(own)
