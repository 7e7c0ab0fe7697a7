"""Activations that wait on the host: what of them is in a GPU's memory."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import save_on_cpu

from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.streams.affine_stream import Allocation
from orchestrator.prediction.tracing.allocation_trace import AllocationRecorder
from orchestrator.prediction.tracing.fakes.fake_host import host_memory
from orchestrator.units import MIB

H200 = load_gpu("h200")
LAYERS = 12


class Exponentials(torch.nn.Module):
    """Layers that save their output of a MiB, behind a weight of that size."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(2**18))
        self.lm_head = torch.nn.Identity()

    def forward(self) -> torch.Tensor:
        hidden = self.weight * 2
        for _ in range(LAYERS):
            hidden = hidden.exp()
        return self.lm_head(hidden)


def by_pytorch(model):
    return save_on_cpu(pin_memory=True, device_type="cpu")


def by_trl(model):
    offloading = pytest.importorskip("trl.models.activation_offloading")
    return offloading.get_act_offloading_ctx_manager(model)


@pytest.mark.parametrize("moved", [by_pytorch, by_trl])
def test_activations_leave_the_gpu_and_come_back(moved):
    recorder = AllocationRecorder()
    with host_memory(), FakeTensorMode(), recorder:
        model = Exponentials()
        recorder.stream()
        with moved(model):
            output = model()
        forward = recorder.stream()
        output.sum().backward()
        backward = recorder.stream()
    # What the layers take is freed, but for the output.
    assert len(_taken(forward)) == 1 + LAYERS
    assert len(forward.events) == 2 * (1 + LAYERS) - 1
    # TRL brings the outputs back on a CUDA stream of its own.
    streams = [own.cuda_stream for own in _taken(backward)]
    computed = 1 + LAYERS  # the gradients
    assert streams.count(0) == computed + (LAYERS if moved is by_pytorch else 0)
    assert streams.count(1) == (0 if moved is by_pytorch else LAYERS)


def _taken(stream):
    """The allocations of a MiB."""
    allocations = (own for own in stream.events if isinstance(own, Allocation))
    return [own for own in allocations if own.nbytes(H200) == MIB]
