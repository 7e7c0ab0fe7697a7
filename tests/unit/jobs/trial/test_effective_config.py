"""What shared the states, read from models that are really sharded over a SIMULATED group."""

from collections.abc import Iterator

import pytest
import torch
from bitsandbytes.nn import Linear4bit
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from jobs.errors import UnsupportedError
from jobs.trial.effective_config import sharding
from jobs.trial.weight_formats import weights_of


@pytest.fixture
def group() -> Iterator[None]:
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield
    torch.distributed.destroy_process_group()


def model() -> torch.nn.Module:
    return torch.nn.Sequential(*(torch.nn.Linear(8, 8, bias=False) for _ in range(2)))


@pytest.mark.parametrize("reshard", [True, False])
def test_fsdp2_keeps_a_share_of_each_parameter_and_may_gather_it_twice(reshard, group):
    sharded = model()
    mesh = torch.distributed.init_device_mesh("cpu", (4,))
    for layer in sharded:
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
    assert sharding(sharded) == {
        "sharding_engine": "FSDP2",
        "parameter_share": 0.25,
        "communication_backend": "fake",
        "regathered_modules": 2 * reshard,
    }
    weights = weights_of(sharded)
    assert [(own.elements, own.format, own.nbytes) for own in weights] == [(64, "float32", 64)] * 2


def test_packed_weights_keep_their_format_where_fsdp2_shards_them(group):
    packed = Linear4bit(64, 64, bias=False, quant_type="nf4", quant_storage=torch.bfloat16)
    layer = torch.nn.Sequential(packed).to("cpu")
    fully_shard(layer, mesh=torch.distributed.init_device_mesh("cpu", (4,)))
    (weight,) = weights_of(layer)
    assert (weight.elements, weight.bits, weight.format) == (64 * 64, 4, "nf4")


def test_ddp_keeps_every_parameter(group):
    replicated = torch.nn.parallel.DistributedDataParallel(model())
    assert sharding(replicated) == {
        "sharding_engine": "DDP",
        "parameter_share": 1.0,
        "communication_backend": "fake",
    }


def test_one_process_shares_nothing_and_data_parallel_is_refused():
    assert sharding(model()) == {}
    with pytest.raises(UnsupportedError, match="use sharding: ddp"):
        sharding(torch.nn.DataParallel(model()))
