"""What DeepSpeed moves in an update, from its source, in bytes of each parameter."""

from types import SimpleNamespace

import pytest
import torch

from orchestrator.prediction.time.operations import OPTIMIZER, Operation, Work
from orchestrator.prediction.time.shared_work import zero_update
from tests.conftest import build_tiny_spec

SIZE = 1000
NORM, CLIPPED, WEIGHTS = 2 + 8 + 8, 2 * 2 + 2 * 4, 2
"""Bytes of an element that a rank updates."""
COPIED, FLAT = 4, 4 * 2.5
"""Bytes of each gradient: to the bucket; flattened, divided and, of a rank's half, copied back."""


@pytest.mark.parametrize(("stage", "times"), [(1, 1), (2, 3), (3, 0)])
def test_stages_move_flat_buckets_as_often_as_they_reduce(stage, times):
    engine = SimpleNamespace(stage=stage, ranks=2, bucket_elements=10**9)
    spec = build_tiny_spec({"accumulation": 3})
    parameters = [torch.nn.Parameter(torch.zeros(SIZE))]
    update = Work.of([Operation(kind=OPTIMIZER, writes=((0, 28 * SIZE // 2),))])
    moved = zero_update(spec, engine, parameters, update).by_kind[OPTIMIZER]
    halves = (NORM + CLIPPED + WEIGHTS + 28) / 2
    assert (moved[:, 1] * moved[:, 2]).sum() == SIZE * (COPIED + times * FLAT + halves)
