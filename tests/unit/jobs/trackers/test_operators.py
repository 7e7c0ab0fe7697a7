"""The inspected step: its attention kernel and dtypes; inspection leaves nothing behind."""

import gc
import itertools
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from jobs.trackers import Operators


class Attention(nn.Module):
    """Two products in bfloat16 around scaled dot-product attention."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(8, 8, dtype=torch.bfloat16)
        self.after = nn.Linear(8, 8, dtype=torch.bfloat16)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.before(inputs)[:, None]
        return self.after(nn.functional.scaled_dot_product_attention(hidden, hidden, hidden)[:, 0])


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.fixture
def without_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def run_step(tracker: Operators) -> None:
    """A step with products in bfloat16 in its forward pass, and in double precision before it."""
    tracker.step_begin(1)
    tracker.phase("data")
    for _ in range(9):
        torch.ones(4, 4, dtype=torch.float64) @ torch.ones(4, 4, dtype=torch.float64)
    tracker.phase("forward")
    loss = Attention()(torch.ones(2, 4, 8, dtype=torch.bfloat16)).sum()
    tracker.phase("backward")
    loss.backward()
    tracker.step_end()


@pytest.mark.usefixtures("with_gpu")
def test_operators_on_a_gpu_inspect_the_forward_pass():
    tracker = Operators()
    run_step(tracker)
    values = tracker.measurements()
    assert values["attention_kernel"] == "flash (cpu)"
    assert values["matmul_dtype"] == "bfloat16"
    assert "cpu_step_peak_bytes" not in values
    assert values["inspection_seconds"] > 0
    tracker.phase("forward")
    assert not _get_current_dispatch_mode_stack()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_operators_on_a_cpu_inspect_the_whole_step(monkeypatch, dtype):
    monkeypatch.setattr("time.perf_counter", itertools.count().__next__)
    tracker = Operators()
    tracker.step_begin(1)
    tracker.step_end()
    assert tracker.measurements() == {"cpu_step_peak_bytes": 0, "inspection_seconds": 2}
    tracker.step_begin(1)
    factor = torch.ones(2, 8, 8, dtype=getattr(torch, dtype))
    for _ in range(9):
        torch.bmm(factor, factor)
        torch.softmax(torch.empty(2**20), 0)
    Attention()(torch.ones(2, 4, 8, dtype=torch.bfloat16))
    tracker.step_end()
    values = tracker.measurements()
    assert values["attention_kernel"] == "softmax, flash (cpu)"
    assert values["matmul_dtype"] == dtype
    assert 2 * 2**22 <= values["cpu_step_peak_bytes"] < 2.1 * 2**22


@pytest.mark.usefixtures("with_gpu", "without_garbage_collection")
def test_operators_leave_nothing_for_the_garbage_collector():
    tracker = Operators()
    tracker.step_begin(1)
    tracker.phase("forward")
    listener = weakref.ref(tracker._listener)
    tracker.phase("backward")
    assert listener() is None


def test_operators_let_a_compiler_compile_only_once(monkeypatch):
    graphs = []

    def backend(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
        graphs.append(module)
        return module.forward

    tracker = Operators()
    attention = torch.compile(Attention(), backend=backend)
    inputs = torch.ones(2, 4, 8, dtype=torch.bfloat16)
    with monkeypatch.context() as with_gpu:
        with_gpu.setattr(torch.cuda, "is_available", lambda: True)
        tracker.step_begin(1)
    tracker.phase("forward")
    attention(inputs)
    tracker.phase("backward")
    assert tracker.measurements()["matmul_dtype"] == "bfloat16"
    attention(inputs)
    assert len(graphs) == 1


@pytest.mark.usefixtures("with_gpu")
def test_operators_stop_listening_when_the_trial_fails():
    with Operators() as tracker:
        tracker.step_begin(1)
        tracker.phase("forward")
    assert not _get_current_dispatch_mode_stack()
