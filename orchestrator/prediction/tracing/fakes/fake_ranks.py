"""Training that several ranks share: PyTorch's own engines on tensors without data, as rank 0."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from torch._C._distributed_c10d import GradBucket
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import _disable_current_modes

from jobs.spec import TrialSpec
from orchestrator.prediction.tracing.allocation_trace import AllocationRecorder
from orchestrator.prediction.unsupported import is_fsdp

Forward = Callable[..., Any]


@contextmanager
def fake_ranks(world_size: int) -> Iterator[None]:
    """Within it, this process is the first of so many, whose communication moves nothing."""
    if world_size == 1:
        yield
        return
    store = FakeStore()
    torch.distributed.init_process_group("fake", store=store, rank=0, world_size=world_size)
    try:
        with patch.object(ShardingPropagator, _SHAPES, _unrecorded(ShardingPropagator)):
            yield
    finally:
        torch.distributed.destroy_process_group()


_SHAPES = "_propagate_tensor_meta_non_cached"
"""Method that runs an operator once on whole tensors, which take no memory, for their shapes."""


def _unrecorded(propagator: Any) -> Callable[..., Any]:
    shapes = getattr(propagator, _SHAPES)

    def without_modes(*arguments: Any) -> Any:
        with _disable_current_modes():
            return shapes(*arguments)

    return without_modes


def shared(model: Any, spec: TrialSpec, forward: Forward, recorder: AllocationRecorder) -> Forward:
    """What the trial's loop calls, where ``forward`` is the model's own pass as one GPU runs it.

    DeepSpeed's engine is no part of the trace: ``zero.py`` has its buffers.
    """
    if spec.world_size == 1 or spec.settings.deepspeed is not None:
        return forward
    if is_fsdp(spec):
        return _fully_sharded(model, spec)
    with recorder.phase("share"):
        return distributed(_Passing(model, forward), spec)


def _fully_sharded(model: Any, spec: TrialSpec) -> Forward:
    """As ``Accelerator.prepare`` shards it. Mixed precision is then FSDP's own, not autocast's."""
    arguments = spec.settings.training_arguments
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        reshard_after_forward=arguments["fsdp_config"]["reshard_after_forward"],
        auto_wrap_policy="transformer_based_wrap",
        cpu_ram_efficient_loading=False,
    )
    precision = next((name for name in ("bf16", "fp16") if arguments.get(name)), "no")
    if precision != "no":
        plugin.set_mixed_precision(precision)
    with _disable_current_modes():  # the mesh's own tensor has data
        mesh = init_device_mesh("cpu", (spec.world_size,))
    accelerator = SimpleNamespace(
        torch_device_mesh={("ranks",): mesh},
        parallelism_config=SimpleNamespace(fsdp_dim_names=("ranks",)),
        state=SimpleNamespace(fsdp_plugin=plugin),
        mixed_precision=precision,
        is_main_process=False,
    )
    sharded: Forward = fsdp2_prepare_model(accelerator, model)
    return sharded


@contextmanager
def unreduced(model: Any) -> Iterator[None]:
    """As ``Accelerator.no_sync`` has it: whole gradients are kept, which a later pass reduces."""
    model.set_requires_gradient_sync(False)
    yield
    model.set_requires_gradient_sync(True)


class _Passing(torch.nn.Module):
    """A model whose forward pass is ``forward``."""

    def __init__(self, model: torch.nn.Module, forward: Forward) -> None:
        super().__init__()
        self.model = model
        self.forward = forward


def distributed(model: torch.nn.Module, spec: TrialSpec) -> DistributedDataParallel:
    """As the Trainer and ``Accelerator.prepare_model`` set it up."""
    checkpoints = bool(spec.settings.training_arguments.get("gradient_checkpointing"))
    engine = DistributedDataParallel(model, find_unused_parameters=not checkpoints, init_sync=False)
    # The reducer's own call gives no result for tensors without data.
    engine.register_comm_hook(None, _reduced)
    return engine


def _reduced(_: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    torch.distributed.all_reduce(bucket.buffer())
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future
