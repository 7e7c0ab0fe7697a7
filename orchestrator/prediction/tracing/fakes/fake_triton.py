"""Libraries of triton kernels on tensors without data: kernels do nothing, buffers are allocated.

Such a library makes its tensors in Python and then launches kernels on them. So with a triton whose
launches have no effect, a trace sees the memory that a GPU would.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.libraries import not_compiled
from orchestrator.prediction.tracing.allocation_trace import AllocationRecorder

_TRITON = """
    triton triton.language triton.language.math triton.language.extra
    triton.language.extra.libdevice triton.language.extra.cuda
    triton.language.extra.cuda.libdevice triton.runtime triton.runtime.driver triton.compiler
    triton.testing
"""
"""The modules that the libraries import."""
_MULTIPLIED = torch.ops.aten.mm.default
_LOGITS = {"_cce_lse_forward_kernel": 1, "_cce_backward_kernel": 3}
"""Kernel of cut-cross-entropy -> how many products as large as that of all logits it computes. The
backward pass skips some where gradients are too small; how many depends on the weights."""


class TritonModules:
    """The libraries' modules, and those of transformers as Liger changes them, during a context
    alone."""

    def __init__(self, libraries: Sequence[str], gpu: Gpu, recorder: AllocationRecorder) -> None:
        """``libraries``: the names of their packages in Python."""
        self._owners = {*libraries, "triton"}
        self._is_newer = gpu.capability >= 8.0
        self._torch = _torch_on(is_newer=self._is_newer)
        self._recorder = recorder
        self._modules: dict[str, ModuleType] = {}
        self._changed: dict[str, dict[str, Any]] = {}
        """Module of transformers -> the names that Liger replaced in it."""

    @contextmanager
    def present(self) -> Iterator[None]:
        # Later trials, and what else runs in this process, must find neither these kernels nor what
        # Liger puts into the modules of transformers.
        outside = self._taken_out()
        sys.modules.update(self._modules or _stand_ins(self._recorder))
        if "liger_kernel" in self._owners:
            loss: Any = import_module("liger_kernel.ops.fused_linear_cross_entropy")
            loss.torch = self._torch
        modelling = [name for name in sys.modules if name.startswith("transformers.models.")]
        names = {name: dict(vars(sys.modules[name])) for name in modelling}
        for name, changed in self._changed.items():
            vars(sys.modules[name]).update(changed)
        try:
            with (
                # What a library compiles with PyTorch allocates as much as uncompiled, or less.
                patch.object(torch, "compile", not_compiled),
                patch.object(torch.cuda, "is_bf16_supported", lambda *_, **__: self._is_newer),
            ):
                yield
        finally:
            for name, before in names.items():
                now = vars(sys.modules[name])
                self._changed[name] = {
                    key: now[key] for key, own in before.items() if now[key] is not own
                }
                now.update(before)
            self._modules = self._taken_out()
            sys.modules.update(outside)

    def _taken_out(self) -> dict[str, ModuleType]:
        """The libraries' modules, which are then no longer imported."""
        own = [name for name in sys.modules if name.partition(".")[0] in self._owners]
        return {name: sys.modules.pop(name) for name in own}


def _accumulated(rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """A product that takes no memory: on CUDA, Liger adds it to the weight's gradient at once."""
    return torch.zeros((), device=rows.device).expand(rows.shape[0], columns.shape[1])


def _torch_on(*, is_newer: bool) -> Any:
    """What the module of Liger's loss takes for torch on a GPU."""
    # It asks whether the gradient of its loss is 1, and otherwise scales its gradients in place.
    changed: dict[str, Any] = {"equal": lambda *_: True}
    if is_newer:  # its own condition
        changed["mm"] = _accumulated
    return SimpleNamespace(**{**vars(torch), **changed})


class _Kernel:
    """A function that is compiled by triton: launched on a grid, it does nothing."""

    def __init__(self, function: Callable[..., Any], recorder: AllocationRecorder) -> None:
        self.fn = function
        self._recorder = recorder

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return self._launch

    def _launch(self, *args: Any, **_: Any) -> None:
        for _product in range(_LOGITS.get(self.fn.__name__, 0)):
            hidden, weight, *others = args
            result = next(own for own in others if isinstance(own, torch.Tensor))
            self._recorder.record_operation(_MULTIPLIED, (hidden, weight.t()), result)


def _unchanged(*_: Any, **__: Any) -> Any:
    return lambda kernel: kernel


class _Constant(int):
    """A ``constexpr`` of a kernel."""

    value = property(int)


class _Module(ModuleType):
    """A module in which every name is another such module, and which contains nothing."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__spec__ = ModuleSpec(name, None, is_package=True)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _Module(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__


def _stand_ins(recorder: AllocationRecorder) -> dict[str, ModuleType]:
    def jit(function: Any = None, **_: Any) -> Any:
        return jit if function is None else _Kernel(function, recorder)

    modules: dict[str, Any] = {name: _Module(name) for name in _TRITON.split()}
    for name, module in modules.items():
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(modules[parent], last, module)
    triton = modules["triton"]
    triton.__version__ = "3.0.0"
    triton.jit = jit
    triton.autotune = triton.heuristics = _unchanged
    triton.cdiv = lambda size, block: -(-size // block)
    triton.next_power_of_2 = lambda size: 1 << (size - 1).bit_length()
    modules["triton.language"].constexpr = _Constant
    return modules
