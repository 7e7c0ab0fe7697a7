"""Operators whose memory on CUDA differs from what tensors without data show."""

from collections.abc import Mapping
from typing import Any

import torch

from orchestrator.prediction.tracing.known_results import KnownResults

_aten = torch.ops.aten
_ADDED_TO_ZEROS = {_aten.index_put.default, _aten.scatter_add.default, _aten.scatter.src}
"""What autograd runs on zeros of its own: torch/csrc/autograd/FunctionsManual.cpp."""


def run_as_cuda(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], results: KnownResults
) -> tuple[Any, list[torch.Tensor]]:
    """Run an operator with the allocations that CUDA and autograd make on tensors with data.
    Returns its output, and the tensors that CUDA makes on the way."""
    if func is _aten._grouped_mm.default and args[0].dtype is not torch.bfloat16:
        return _grouped_product(*args[:3]), []
    if func is _aten.roll.default and len(args[1]) > 1:
        return _rolled(func, *args[:3])
    if func is _aten.addmm.dtype_out:
        return kwargs["out"], []
    # Autograd adds gradients in place if nothing else holds the tensor. It does not do so for a
    # subclass of tensors, and tensors without data are one.
    if func in _ADDED_TO_ZEROS and _in_backward():
        return args[0], []
    if func is _aten.add.Tensor and _in_backward() and _is_sole_owner(*args[:2]):
        return args[0], []
    output = results.run(func, args, kwargs)
    # CUDA's kernel allocates the mask before the result.
    return output, [output[1]] if func is _aten.native_dropout.default else []


def _rolled(
    func: Any, tensor: torch.Tensor, shifts: Any, dims: Any
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """CUDA rolls one dimension after another."""
    rolled = [tensor]
    for shift, dim in zip(shifts, dims, strict=True):
        rolled.append(func(rolled[-1], [shift], [dim]))
    return rolled[-1], rolled[1:-1]


def _in_backward() -> bool:
    """Whether autograd itself runs the operator; a recomputing checkpoint is not such a case."""
    return torch._C._current_graph_task_id() != -1 and not torch.is_grad_enabled()


def _is_sole_owner(accumulated: Any, gradient: Any) -> bool:
    """Whether a sum has the last reference to its memory: torch/csrc/autograd/input_buffer.cpp."""
    if not isinstance(gradient, torch.Tensor) or accumulated.shape != gradient.shape:
        return False
    storage = accumulated.untyped_storage()
    if accumulated.nbytes != storage.nbytes():
        return False
    # References to the tensor, and to its storage, that only an operator's caller holds.
    references = (accumulated._use_count(), torch._C._storage_Use_Count(storage._cdata))
    return references == (4, 2)


def _grouped_product(
    left: torch.Tensor, right: torch.Tensor, offsets: torch.Tensor
) -> torch.Tensor:
    """The product of grouped matrices that are not bf16: CUDA multiplies them group by group, and
    the operator without data would refuse them."""
    # Shapes after ``_grouped_mm_meta`` of PyTorch.
    if left.dim() == right.dim() == 2:
        return left.new_empty(offsets.shape[0], left.shape[0], right.shape[1])
    rows = left.shape[1:2] if left.dim() == 3 and right.dim() == 2 else left.shape[:-1]
    return left.new_empty(*rows, right.shape[-1])
