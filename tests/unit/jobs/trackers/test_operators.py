"""The inspected step: what its operators say of attention and matrix products, and that it leaves nothing behind."""

from __future__ import annotations

import gc
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
        self.before, self.after = (
            nn.Linear(8, 8, dtype=torch.bfloat16),
            nn.Linear(8, 8, dtype=torch.bfloat16),
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.before(inputs)[:, None]
        return self.after(nn.functional.scaled_dot_product_attention(hidden, hidden, hidden)[:, 0])


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def inspected(*, backward_ends_it: bool) -> Operators:
    """The tracker after a step, of which the backward pass has products in double precision only."""
    tracker = Operators()
    tracker.step_begin(1)
    tracker.phase("forward")
    loss = Attention()(torch.ones(2, 4, 8, dtype=torch.bfloat16)).sum()
    tracker.phase("backward")
    assert ("matmul_dtype" in tracker.measurements()) is backward_ends_it
    loss.backward()
    for _ in range(9):
        torch.ones(4, 4, dtype=torch.float64) @ torch.ones(4, 4, dtype=torch.float64)
    tracker.step_end()
    return tracker


@pytest.mark.usefixtures("with_gpu")
def test_on_a_gpu_the_first_forward_pass_is_inspected() -> None:
    found = inspected(backward_ends_it=True).measurements()
    assert found["attention_kernel"] == "flash (cpu)"
    assert found["matmul_dtype"] == "bfloat16"
    assert "cpu_step_peak_bytes" not in found


def test_without_one_the_whole_step_is() -> None:
    found = inspected(backward_ends_it=False).measurements()
    assert found["matmul_dtype"] == "float64"
    assert found["cpu_step_peak_bytes"] > 0


@pytest.mark.usefixtures("with_gpu", "no_collector")
def test_nothing_is_left_for_the_collector_to_free_in_a_counted_step() -> None:
    tracker = Operators()
    tracker.step_begin(1)
    tracker.phase("forward")
    dispatched = weakref.ref(tracker._dispatched)
    tracker.phase("backward")
    assert dispatched() is None


def test_a_compiler_does_its_work_under_inspection_and_only_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graphs = []

    def compiler(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
        graphs.append(module)
        return module.forward

    tracker, attention = Operators(), torch.compile(Attention(), backend=compiler)
    with monkeypatch.context() as with_gpu:
        with_gpu.setattr(torch.cuda, "is_available", lambda: True)
        tracker.step_begin(1)
    tracker.phase("forward")
    inputs = torch.ones(2, 4, 8, dtype=torch.bfloat16)
    attention(inputs)
    tracker.phase("backward")
    assert tracker.measurements()["matmul_dtype"] == "bfloat16"
    attention(inputs)
    assert len(graphs) == 1


@pytest.mark.usefixtures("with_gpu")
def test_it_ends_with_a_trial_that_failed_in_its_forward_pass() -> None:
    with Operators() as tracker:
        tracker.step_begin(1)
        tracker.phase("forward")
    assert not _get_current_dispatch_mode_stack()
