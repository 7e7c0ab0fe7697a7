"""Every allocation and free of a traced step, in order, and what each was for."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from orchestrator.prediction.affine_stream import Allocation, Event, Free, Stream

_aten = torch.ops.aten
_PRODUCTS = {_aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default}
_ALL = {_aten.all.default, _aten.all.dim, _aten.all.dims}
_SUMS = {_aten.sum.dim_IntList, _aten.mean.dim}
_KERNELS = {
    _aten.convolution.default: "cudnn",
    _aten._scaled_dot_product_cudnn_attention.default: "cudnn",
    _aten._scaled_dot_product_flash_attention.default: "flash",
    _aten._scaled_dot_product_efficient_attention.default: "efficient",
    _aten._softmax.default: "softmax",
}
_LEFT_AS = {
    "build": "weights",
    "inputs": "inputs",
    "forward": "saved activations",
    "backward": "gradients",
    "update": "optimizer states",
}
"""Phase -> what its allocations are that outlive it."""
_OURS = (4, 2)
"""References to a tensor that nothing else holds while it passes through here, and to its storage."""
Extra = tuple[str, tuple[int, ...]]


class Recorder(TorchDispatchMode):
    """Sees each operator of a step on tensors without data, and the storages that come and go.

    Workspaces that kernels take for themselves are added where the operator runs. Nothing here has data: a value read
    from a tensor is one, "all" is true and any other condition false, as they are for samples that are neither padded
    nor packed.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._phase = ""
        self._parameters: set[int] = set()
        self._living: dict[int, tuple[int, int]] = {}
        self._references: dict[int, Any] = {}
        self._all: set[int] = set()
        self._opened = 0
        self._start()

    def _start(self) -> None:
        self._opened += 1
        self._events: list[tuple[int, str, tuple[int, ...], str]] = []
        self._kinds: dict[int, str] = {}
        self._alive: dict[int, str] = {}
        self._left_out: set[int] = set()
        self._kernels: set[str] = set()
        self._number = 0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Allocations inside that outlive it are of this phase's kind; the others are temporary."""
        outer, self._phase = self._phase, name
        try:
            yield
        finally:
            self._phase = outer
            for number, phase in self._alive.items():
                if phase == name:
                    self._kinds.setdefault(number, _LEFT_AS[name])

    def stream(self, *, samples: int = 0) -> Stream:
        """What was recorded since the last call."""
        events: list[Event] = []
        frees: list[int] = []
        for number, formula, integers, once in self._events:
            if abs(number) in self._left_out:
                continue
            if number < 0:
                frees.append(-number)
                continue
            # Whole sets go at once (autocast's cache) in an order that means nothing.
            events += [Free(number=freed) for freed in sorted(frees)]
            frees = []
            kind = self._kinds.get(number, "temporary buffers")
            events.append(
                Allocation(number=number, formula=formula, integers=integers, kind=kind, once=once)
            )
        events += [Free(number=freed) for freed in sorted(frees)]
        made = Stream(events=tuple(events), samples=samples, kernels=frozenset(self._kernels))
        self._start()
        return made

    def know_parameters(self, parameters: Iterator[torch.Tensor]) -> None:
        """Copies that autocast makes of these are told from activations."""
        self._parameters = {parameter.untyped_storage()._cdata for parameter in parameters}

    def leave_out(self, tensor: torch.Tensor) -> None:
        """This tensor does not live on the device."""
        opened, number = self._living.get(tensor.untyped_storage()._cdata, (0, 0))
        if opened == self._opened:
            self._left_out.add(number)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is torch.ops.prim.device.default:
            return args[0].fake_device  # asked more often than all else together
        if func is _aten._local_scalar_dense.default:
            return args[0].dtype is not torch.bool or args[0].untyped_storage()._cdata in self._all
        if func.namespace == "bitsandbytes":
            return None  # its update kernels work in place
        if func in _PRODUCTS:
            self._libraries(func, args)
        out = self._run(func, args, kwargs or {})
        for tensor in _tensors(out):
            self._see(tensor, func, args)
        if func in _ALL:
            self._all.add(out.untyped_storage()._cdata)
        if func in _KERNELS:
            self._kernels.add(_KERNELS[func])
        taken = [
            self._add(*workspace, "kernel workspaces") for workspace in _workspaces(func, args)
        ]
        self._events += [(-number, "", (), "") for number in taken]
        return out

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What the operator gives, made as CUDA and autograd make it of tensors with data."""
        if func is _aten._grouped_mm.default and args[0].dtype is not torch.bfloat16:
            return _grouped_product(*args[:3])
        if func is _aten.roll.default and len(args[1]) > 1:
            between = func(
                args[0], args[1][:1], args[2][:1]
            )  # CUDA rolls one dimension after another
            self._see(between, func, args)
            out = self._run(func, (between, args[1][1:], args[2][1:]), kwargs)
            self._see(out, func, args)
            return out
        # Autograd writes over what nobody else has, unless it is of a subclass of tensors, as those without data are.
        if func is _aten.index_put.default and _in_backward():
            return args[0]
        if func is _aten.add.Tensor and _in_backward() and _sole_owner(*args[:2]):
            return args[0]
        return func(*args, **kwargs)

    def _libraries(self, func: Any, args: tuple[Any, ...]) -> None:
        """cuBLAS gets its workspace once per thread: the backward pass has one of its own."""
        thread = "backward" if self._phase == "backward" else "forward"
        names = ["cublas"]
        if func is _aten.addmm.default and args[0].dim() == 1:
            names.append("cublaslt")
        for name in names:
            if f"{name} {thread}" not in self._kernels:
                self._kernels.add(f"{name} {thread}")
                self._add(name, (), "library workspaces", once=f"{name} {thread}")

    def _see(self, tensor: torch.Tensor, func: Any, args: tuple[Any, ...]) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._living:
            return
        number = self._add("tensor", (storage.nbytes(),), self._kind(func, args))
        if self._phase:
            self._alive[number] = self._phase
        self._living[key] = (self._opened, number)
        self._references[key] = weakref.ref(storage, lambda _: self._gone(key))

    def _kind(self, func: Any, args: tuple[Any, ...]) -> str:
        if func is _aten._to_copy.default and args[0].untyped_storage()._cdata in self._parameters:
            return "autocast copies of weights"
        if torch.is_grad_enabled() and torch._C._current_graph_task_id() != -1:
            return "recomputed activations"
        return ""

    def _add(self, formula: str, integers: tuple[int, ...], kind: str, *, once: str = "") -> int:
        self._number += 1
        if kind:
            self._kinds[self._number] = kind
        self._events.append((self._number, formula, integers, once))
        return self._number

    def _gone(self, key: int) -> None:
        opened, number = self._living.pop(key)
        del self._references[key]
        self._all.discard(key)
        if opened == self._opened:
            self._alive.pop(number, None)
            self._events.append((-number, "", (), ""))


def _in_backward() -> bool:
    """Whether an operator is autograd's own; what a checkpoint runs again is not."""
    return torch._C._current_graph_task_id() != -1 and not torch.is_grad_enabled()


def _sole_owner(sum_so_far: Any, gradient: Any) -> bool:
    """Whether a sum of gradients is the last reference to its memory: torch/csrc/autograd/input_buffer.cpp."""
    storage = sum_so_far.untyped_storage()
    return (
        isinstance(gradient, torch.Tensor)
        and sum_so_far.shape == gradient.shape
        and sum_so_far.nbytes == storage.nbytes()
        and (sum_so_far._use_count(), torch._C._storage_Use_Count(storage._cdata)) == _OURS
    )


def _grouped_product(
    left: torch.Tensor, right: torch.Tensor, offsets: torch.Tensor
) -> torch.Tensor:
    """CUDA multiplies group by group what its kernel for bf16 does not take; without data it would be refused."""
    if left.dim() == right.dim() == 2:
        return left.new_empty(offsets.shape[0], left.shape[0], right.shape[1])
    rows = left.shape[:-1] if left.dim() == 2 or right.dim() == 3 else left.shape[1:2]
    return left.new_empty(*rows, right.shape[-1])


def _tensors(out: Any) -> Iterator[torch.Tensor]:
    if isinstance(out, torch.Tensor):
        yield out
    elif isinstance(out, (tuple, list)):
        for part in out:
            yield from _tensors(part)


def _workspaces(func: Any, args: tuple[Any, ...]) -> Iterator[Extra]:
    if func in _SUMS:
        yield "column_sum", _layout(args[0], args[1] if len(args) > 1 else None)
    elif func is _aten._softmax_backward_data.default:
        yield "tensor", (args[0].numel() * args[0].element_size(),)  # gradient times output
    elif func is _aten.native_layer_norm_backward.default:
        yield from _layer_norm(*args[1:3], *args[5:8])
    elif func is _aten.embedding_dense_backward.default:
        yield "embedding_backward", (args[1].numel(), args[2], args[0].shape[-1])
    elif func is _aten._scaled_dot_product_cudnn_attention_backward.default:
        yield "cudnn_attention_backward", (*_pairs(args[1], args[2]), args[2].shape[1])
    elif func is _aten._scaled_dot_product_efficient_attention_backward.default:
        yield "efficient_attention_backward", (*_pairs(args[1], args[2]), args[1].element_size())


def _layer_norm(
    inputs: torch.Tensor, shape: Any, weight: Any, bias: Any, wanted: Any
) -> Iterator[Extra]:
    width = prod(shape)
    for parameter, is_wanted in zip((weight, bias), wanted[1:], strict=True):
        if parameter is not None and is_wanted:
            yield "layer_norm_backward", (inputs.numel() // width, width, parameter.element_size())


def _layout(tensor: torch.Tensor, dims: Any) -> tuple[int, ...]:
    reduced = {dim % tensor.dim() for dim in dims} if dims else set(range(tensor.dim()))
    parts = zip(tensor.shape, tensor.stride(), range(tensor.dim()), strict=True)
    return tuple(
        number for size, stride, dim in parts for number in (size, stride, int(dim in reduced))
    )


def _pairs(query: torch.Tensor, key: torch.Tensor) -> tuple[int, int, int, int, int]:
    """Batch, heads, queries, keys and width of attention's inputs."""
    return query.shape[0], query.shape[1], query.shape[2], key.shape[2], query.shape[3]
