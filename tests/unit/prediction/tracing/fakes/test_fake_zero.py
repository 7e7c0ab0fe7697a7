"""What an optimizer's step takes under DeepSpeed's engine."""

from dataclasses import replace

import pytest

from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.streams.affine_stream import Allocation
from orchestrator.prediction.tracing.fake_step import FakeStep
from tests.conftest import build_tiny_spec

BF16 = {"precision": "bf16"}


def _sizes(choices, ranks=1, **zero):
    """Bytes of what the first and a later update take, and how many elements are trained."""
    spec = build_tiny_spec({**BF16, **choices})
    config = dict(spec.settings.deepspeed)
    config["zero_optimization"] = {**config["zero_optimization"], **zero}
    settings = replace(spec.settings, deepspeed=config)
    step = FakeStep(replace(spec, settings=settings), load_gpu("h200"))
    updates = step.updates(replace(spec, settings=settings, world_size=ranks))
    taken = (
        [own.integers[0] for own in stream.events if isinstance(own, Allocation)]
        for stream in (updates.first, updates.later)
    )
    decayed = [own.numel() for own in step.model.parameters() if own.dim() > 1]
    others = [own.numel() for own in step.model.parameters() if own.dim() == 1]
    return *taken, sum(decayed), sum(others)


@pytest.mark.parametrize(("stage", "ranks"), [(1, 1), (2, 1), (2, 2)])
def test_gradients_are_flattened_and_converted_a_group_at_a_time(stage, ranks):
    first, later, decayed, others = _sizes({"offload": f"zero{stage}"}, ranks)
    groups = [decayed // ranks, others // ranks]
    partition = (decayed + others) // ranks
    copies = [[2 * own, 4 * own] for own in groups]
    assert later == [2 * partition, *copies[0], *copies[1]]
    large = [own for own in first if own > 100]
    # The first step of each group makes two moments.
    moments = [[4 * own, 4 * own] for own in groups]
    assert large == [2 * partition, *copies[0], *moments[0], *copies[1], *moments[1]]


def test_stage_3_has_its_gradients_and_updates_some_elements_at_a_time():
    _, later, decayed, others = _sizes({"offload": "zero3"}, sub_group_size=decayed_half())
    half = decayed_half()
    assert later == [0, 2 * half, 4 * half, *later[3:5], 2 * others, 4 * others]
    assert later[3] == 2 * (decayed - half)


def decayed_half() -> int:
    *_, decayed, _ = _sizes({"offload": "zero3"})
    return decayed - 1000


def test_engine_without_sharding_converts_every_gradient():
    _, later, decayed, others = _sizes({"offload": "zero0"})
    assert sum(later) == 4 * (decayed + others)


def test_states_of_8_bits_are_flat_and_those_on_the_host_take_nothing():
    first, _, decayed, others = _sizes({"offload": "zero2", "optimizer": "adamw_bnb_8bit"})
    # Those of fewer than 4,096 elements stay in 32 bits, beside a gradient.
    assert (first.count(decayed), first.count(4 * others)) == (2, 3)
    on_host, later, *_ = _sizes({"offload": "zero2_cpu_optimizer"})
    assert on_host == later == []


@pytest.mark.parametrize("optimizer", ["adamw_torch_8bit", "adamw_torch_4bit"])
def test_compiled_update_needs_nothing_but_gradients(optimizer):
    _, later, decayed, others = _sizes({"offload": "zero2", "optimizer": optimizer})
    gradients = [2 * decayed, 4 * decayed, 2 * others, 4 * others]
    assert later == [2 * (decayed + others), *gradients]
