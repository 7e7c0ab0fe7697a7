"""A profiled step by class of module: backward work belongs to the module that ran forward."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from jobs.anatomy.time.modules import OUTSIDE, class_name, module_ranges, modules
from jobs.anatomy.trace import COMPILED, Trace, Work
from jobs.anatomy.trace_reader import PHASE, read
from jobs.loops.accumulated_loss import is_compiled
from tests.support.traces import PHASES, kernel


class Wave(torch.nn.Module):
    """The only module to call sine, whose backward pass calls cosine."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)


class Model(torch.nn.Module):
    """Products of its own, a normalization, and another module."""

    def __init__(self, *, checkpointed: bool = False) -> None:
        super().__init__()
        self.products = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        self.norm = torch.nn.LayerNorm(8)
        self.wave = Wave()
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.products(x))
        return checkpoint(self.wave, x, use_reentrant=False) if self.checkpointed else self.wave(x)


def traced(model: torch.nn.Module, ranges: AbstractContextManager[None]) -> Trace:
    """Two micro-batches on the CPU, whose loss is computed outside the model."""
    profiler = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, profile_memory=True
    )
    with profiler as profile, ranges:
        for _ in range(2):
            with torch.autograd.profiler.record_function(PHASE + "forward"):
                loss = model(torch.randn(4, 8, requires_grad=True)).exp().sum()
            with torch.autograd.profiler.record_function(PHASE + "backward"):
                loss.backward()
    return read(profile, "cpu", frozenset())


def callers(trace: Trace) -> dict[str, set[str]]:
    """Operator -> the modules that it was called in."""
    found: dict[str, set[str]] = {}
    for work in trace.work:
        found.setdefault(work.operator, set()).add(work.module)
    return found


@pytest.mark.parametrize("checkpointed", [False, True])
def test_read_credits_operators_to_modules_in_both_passes(checkpointed: bool) -> None:
    model = Model(checkpointed=checkpointed)
    trace = traced(model, module_ranges(model))
    called_in = callers(trace)
    assert called_in["aten::addmm"] == {"Model"}, "torch.nn's blocks count with the outer module"
    assert called_in["aten::mm"] == {"Model"}, "the backward pass of its products"
    assert called_in["aten::native_layer_norm"] == {"LayerNorm"}
    assert called_in["aten::native_layer_norm_backward"] == {"LayerNorm"}
    assert called_in["aten::sin"] == called_in["aten::cos"] == {"Wave"}
    assert called_in["aten::exp"] == {""}


@pytest.mark.parametrize(("checkpointed", "calls"), [(False, 2), (True, 4)])
def test_module_ranges_add_no_operators_and_leave_no_hooks(checkpointed: bool, calls: int) -> None:
    model = Model(checkpointed=checkpointed)
    trace = traced(model, module_ranges(model))
    assert Counter(work.operator for work in trace.work)["aten::sin"] == calls
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_read_credits_compiled_code_to_one_name() -> None:
    model = Model()
    compiled = torch.compile(model, backend="aot_eager")
    assert is_compiled(compiled)
    assert not is_compiled(model)
    traced(compiled, nullcontext())  # compiles
    called_in = callers(traced(compiled, nullcontext()))
    assert called_in["aten::addmm"] == called_in["aten::mm"] == called_in["aten::cos"] == {COMPILED}
    assert called_in["aten::exp"] == {""}


def work(module: str, time: int) -> Work:
    """Two nanoseconds of a kernel."""
    return replace(kernel(time, time + 2, "k", launched=time), module=module)


def test_modules_add_up_to_both_passes() -> None:
    done = [work("A", 10), work("B", 10), work("A", 30), work("", 30), work("A", 60)]
    entries = modules(Trace(work=done, phases=PHASES, repetitions=3.0))
    found = [(entry.name, round(entry.value * 1e9)) for entry in entries]
    assert found == [("A", 12), ("B", 6), (OUTSIDE, 6)]


def test_class_name_has_its_package_where_torch_has_that_name_too() -> None:
    other = type("Linear", (torch.nn.Module,), {"__module__": "peft.tuners.lora.layer"})()
    names = [class_name(module) for module in (other, torch.nn.Linear(1, 1), Wave())]
    assert names == ["peft.Linear", "Linear", "Wave"]
