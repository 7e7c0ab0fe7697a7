"""A profiled step by class of module: the backward pass of an operator belongs to the module that called it."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from jobs.anatomy.time.modules import OUTSIDE, is_compiled, modules, name_of, ranges
from jobs.anatomy.time.phases import phase_reader
from jobs.anatomy.trace import COMPILED, PHASE, Trace, Work, read


class Wave(torch.nn.Module):
    """The only one to call sine, whose backward pass calls cosine."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)


class Model(torch.nn.Module):
    """Products of its own, a normalization, and another module."""

    def __init__(self, *, checkpointed: bool = False) -> None:
        super().__init__()
        self.products = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        self.norm, self.wave = torch.nn.LayerNorm(8), Wave()
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.products(x))
        return checkpoint(self.wave, x, use_reentrant=False) if self.checkpointed else self.wave(x)


def traced(model: torch.nn.Module, called: Any, told: Any) -> Trace:
    """Two micro-batches on the CPU, their loss computed by nobody's module."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with (
        torch.profiler.profile(
            activities=activities, record_shapes=True, profile_memory=True
        ) as profile,
        told,
    ):
        for _ in range(2):
            with torch.autograd.profiler.record_function(PHASE + "forward"):
                loss = called(torch.randn(4, 8, requires_grad=True)).exp().sum()
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
def test_operators_belong_to_their_modules_forward_and_backward(checkpointed: bool) -> None:
    model = Model(checkpointed=checkpointed)
    trace = traced(model, model, ranges(model))
    called_in = callers(trace)
    assert called_in["aten::addmm"] == {"Model"}, (
        "torch.nn's blocks count with the module they are in"
    )
    assert called_in["aten::mm"] == {"Model"}, "the backward pass of its products"
    assert (
        called_in["aten::native_layer_norm"]
        == called_in["aten::native_layer_norm_backward"]
        == {"LayerNorm"}
    )
    assert called_in["aten::sin"] == called_in["aten::cos"] == {"Wave"}
    assert called_in["aten::exp"] == {""}
    sines = Counter(work.operator for work in trace.work)["aten::sin"]
    assert sines == (4 if checkpointed else 2), "ranges neither add nor hide operators"
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_what_was_compiled_is_one() -> None:
    model = Model()
    compiled = torch.compile(model, backend="aot_eager")
    assert is_compiled(compiled)
    assert not is_compiled(model)
    traced(model, compiled, nullcontext())  # compiles
    called_in = callers(traced(model, compiled, nullcontext()))
    assert called_in["aten::addmm"] == called_in["aten::mm"] == called_in["aten::cos"] == {COMPILED}
    assert called_in["aten::exp"] == {""}


def test_modules_add_up_to_both_passes() -> None:
    kinds = (("A", 10), ("B", 10), ("A", 20), ("", 20), ("A", 30))
    work = [
        Work(begin=at, end=at + 2, seconds=2e-9, kernel="k", operator="", launched=at, module=name)
        for name, at in kinds
    ]
    trace = Trace(
        work=work,
        phases=(("forward", 10, 20), ("backward", 20, 30), ("optimizer", 30, 40)),
        times=3.0,
    )
    found = {entry.name: round(entry.value * 1e9) for entry in modules(trace, phase_reader(trace))}
    assert list(found.items()) == [("A", 12), ("B", 6), (OUTSIDE, 6)]
    assert not list(modules(Trace(work=[work[3]], phases=trace.phases), phase_reader(trace)))


def test_a_name_that_torch_has_too_is_told_with_its_package() -> None:
    other = type("Linear", (torch.nn.Module,), {"__module__": "peft.tuners.lora.layer"})()
    assert [name_of(one) for one in (other, torch.nn.Linear(1, 1), Wave())] == [
        "peft.Linear",
        "Linear",
        "Wave",
    ]
