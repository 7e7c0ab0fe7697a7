"""Allocations of traced operators: as many as tensors with data would make."""

from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from orchestrator.prediction.streams.affine_stream import Allocation
from orchestrator.prediction.tracing.allocation_trace import AllocationRecorder
from orchestrator.units import MIB

INDICES = torch.arange(512)
Forward = Callable[[torch.Tensor], torch.Tensor]


def _tensors(recorder: AllocationRecorder) -> int:
    """Tensors of 1 MiB that were made since the last call."""
    allocations = [event for event in recorder.stream().events if isinstance(event, Allocation)]
    return sum(allocation.integers == (MIB,) for allocation in allocations)


def _traced(forward: Forward) -> tuple[int, int]:
    """Tensors of 1 MiB that forward and backward of twice a weight make."""
    recorder = AllocationRecorder()
    with FakeTensorMode(allow_non_fake_inputs=True), recorder:
        weight = torch.nn.Parameter(torch.empty(512, 512))
        recorder.stream()
        loss = forward(weight * 2).sum()
        forward_tensors = _tensors(recorder)
        loss.backward()
        return forward_tensors, _tensors(recorder)


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        # Two gradients from five operators, their sum, and twice that.
        pytest.param(lambda x: x.sin() + x.cos(), (4, 6), id="sum of two"),
        # A gradient that is its own other summand stays.
        pytest.param(lambda x: (x + x).sin(), (3, 4), id="sum with itself"),
        # Zeros that gradients are added to, and twice that.
        pytest.param(lambda x: x[INDICES], (2, 2), id="index"),
        pytest.param(lambda x: x.gather(1, INDICES[:, None]), (1, 2), id="gather"),
        pytest.param(lambda x: x.max(1).values, (1, 2), id="largest of each row"),
        # One dimension after the other.
        pytest.param(lambda x: x.roll((3, 3), (0, 1)), (3, 3), id="roll"),
    ],
)
def test_recorder_counts_tensors_as_with_data(forward, expected):
    assert _traced(forward) == expected


def test_dropout_allocates_its_mask_before_its_result():
    recorder = AllocationRecorder()
    with FakeTensorMode(), recorder:
        inputs = torch.empty(512, 512)
        dropped = torch.native_dropout(inputs, 0.1, True)
        events = recorder.stream().events
        # A BERT-large on an H200 (2026-11-29) reserved 0.3 GiB less than the other order would.
        assert [event.integers for event in events] == [(MIB,), (MIB // 4,), (MIB,)]
        assert len(dropped) == 2


def test_recorder_phase_decides_the_kind_of_what_outlives_it():
    recorder = AllocationRecorder()
    with FakeTensorMode(), recorder:
        with recorder.phase("build"):
            kept = torch.empty(512, 512)
            del_later = torch.empty(512, 512)
            del del_later
        kinds = [event.kind for event in recorder.stream().events if isinstance(event, Allocation)]
        assert kept.shape == (512, 512)
    assert kinds == ["weights", "temporary buffers"]


def test_recorder_names_logits_by_the_size_of_the_vocabulary():
    recorder = AllocationRecorder()
    recorder.vocabulary = 7
    with FakeTensorMode(), recorder, recorder.phase("forward"):
        kept = [torch.empty(2, 3, 7).float(), torch.empty(7, 2), torch.empty(7)]
        kinds = [event.kind for event in recorder.stream().events if isinstance(event, Allocation)]
        assert len(kept) == 3
    assert kinds == ["logits", "temporary buffers", "temporary buffers"]


@pytest.mark.parametrize("is_padded", [False, True])
def test_recorder_conditions_about_all_positions_hold_only_without_padding(is_padded):
    recorder = AllocationRecorder()
    recorder.is_padded = is_padded
    with FakeTensorMode(allow_non_fake_inputs=True), recorder:
        mask = torch.empty((2, 8), dtype=torch.bool)
        assert bool(mask.all()) is not is_padded
        # As transformers asks since 5.23.
        assert bool(mask.sum() == mask.numel()) is not is_padded
        assert not bool(mask.sum() > 3)
