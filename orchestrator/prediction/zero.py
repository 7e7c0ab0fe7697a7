"""Predicts what DeepSpeed's engine allocates on a rank: weights, flat buffers and buckets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from jobs.spec import TrialSpec
from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.kernel_memory import FLOAT_BYTES
from orchestrator.prediction.streams.affine_stream import (
    Allocation,
    Event,
    Free,
    MicroBatches,
    Stream,
)
from orchestrator.prediction.streams.replay import TrialStreams
from orchestrator.prediction.zero_reduction import Reduction, without_gradients
from orchestrator.units import memory

if TYPE_CHECKING:
    from orchestrator.prediction.tracing.fakes.fake_update import Updates

LONGEST_STANDS_FOR_ALL = (
    "rows of unequal length under DeepSpeed: the longest batch stands for all, so what their "
    "fragmentation adds is left out"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ZeroEngine:
    """The values of a DeepSpeed configuration that decide memory on the GPU."""

    stage: int
    ranks: int = 1
    """GPUs over which it shards: optimizer states at stage 1, gradients at 2, parameters at 3."""
    optimizer_on_host: bool
    weights_on_host: bool = False
    bucket_elements: int
    buckets: int = 1
    """Of stages 1 and 2, which have a second one to fill while the first is reduced."""
    live_elements: int
    """Most parameters whose gathered weights stage 3 keeps between their uses."""
    sub_group_elements: int = 1_000_000_000
    """Parameters that stage 3 updates at a time."""

    @classmethod
    def of(cls, spec: TrialSpec, model: Any) -> ZeroEngine:
        config = spec.settings.deepspeed or {}
        zero = config.get("zero_optimization", {})
        # The numbers are DeepSpeed's own defaults.
        bucket = zero.get("reduce_bucket_size", 500_000_000)
        if bucket == "auto":
            # As in ``HfTrainerDeepSpeedConfig.trainer_config_finalize`` of transformers.
            bucket = int(getattr(model.config, "hidden_size", 0) or 0) ** 2
        live = zero.get("stage3_max_live_parameters", 1_000_000_000)
        return cls(
            stage=int(zero.get("stage", 0)),
            ranks=spec.world_size,
            optimizer_on_host=(zero.get("offload_optimizer") or {}).get("device") == "cpu",
            weights_on_host=(zero.get("offload_param") or {}).get("device") == "cpu",
            bucket_elements=int(float(bucket)),
            buckets=2 if zero.get("overlap_comm") else 1,
            live_elements=int(float(live)),
            sub_group_elements=int(float(zero.get("sub_group_size", 1_000_000_000))),
        )

    def host_note(self, spec: TrialSpec, model: torch.nn.Module) -> tuple[str, ...]:
        """What the engine keeps in host memory at least, in a sentence; empty if nothing."""
        # In 32 bits: weights, gradients and two moments. Offloaded weights are in 16 bits.
        needed = 4 * FLOAT_BYTES * _elements(_trained(model)) * self.optimizer_on_host
        needed += 2 * _elements(model.parameters()) * self.weights_on_host
        if not needed:
            return ()
        given = spec.needs.host_bytes
        lacks = f", more than resources.host_memory ({memory(given)})" if 0 < given < needed else ""
        where = f"offload {spec.choices.get('offload', 'deepspeed')}"
        return (f"{where}: at least {memory(needed)} of host memory{lacks}",)

    def outside_bytes(self, gpu: Gpu) -> int:
        """Memory of the communicator and the engine's own context, outside the allocator."""
        if self.ranks > 1:
            return 0  # counted with any training of several GPUs
        return gpu.deepspeed_zero3_bytes if self.stage == 3 else gpu.deepspeed_bytes


def trial_streams(
    model: torch.nn.Module,
    engine: ZeroEngine,
    micro_batches: MicroBatches,
    updates: Updates,
    accumulation: int,
) -> TrialStreams:
    """The allocations of a trial with the engine. ``model`` already has the training precision.

    Each gradient is copied to a bucket and freed (deepspeed/runtime/zero/stage_1_and_2.py and
    stage3.py). Up to stage 2, the first gradient of a backward pass allocates the bucket. Stage 3
    has it from the start, and reduces it on a CUDA stream whose cached memory no other can use.
    """
    is_stage_3 = engine.stage == 3
    first, later = micro_batches
    bucket_bytes = engine.bucket_elements * _trained(model)[0].element_size() * bool(engine.stage)
    if engine.stage in (1, 2) or engine.ranks > 1:
        reduction = Reduction(
            stage=engine.stage,
            bucket_bytes=bucket_bytes,
            buckets=engine.buckets,
            partition_bytes=0 if engine.optimizer_on_host else _partition_bytes(model, engine),
            is_alone=engine.ranks == 1,
        )
        # The update begins with the gradients of this rank.
        first = without_gradients(reduction.of_step(first, later if accumulation > 1 else None))
        later = None
    elif is_stage_3:
        # A later micro-batch finds no gradients, as the first.
        first = _bucketed(first, bucket_bytes)
        later = later and first
    return TrialStreams(
        model=Stream(events=tuple(_allocations(_resident_sizes(model, engine)))),
        first=first,
        later=later,
        accumulation=accumulation,
        first_update=updates.first,
        update=updates.later,
        reserved_elsewhere=is_stage_3 * (bucket_bytes + _reduced_bytes(model, engine)),
    )


def _trained(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _allocations(sizes: Iterable[tuple[int, str]]) -> list[Allocation]:
    return [
        Allocation(number=number, formula="tensor", integers=(nbytes,), kind=kind)
        for number, (nbytes, kind) in enumerate(sizes, 1)
    ]


def _resident_sizes(model: torch.nn.Module, engine: ZeroEngine) -> Iterator[tuple[int, str]]:
    """Bytes and kind of each buffer that lives during all steps, in order of allocation."""
    trained = _trained(model)
    partitions = engine.ranks if engine.stage == 3 else 1
    if not engine.weights_on_host:
        # All trained weights lie in one flat buffer. Others have their own.
        yield sum(parameter.nbytes for parameter in trained) // partitions, "weights"
        for parameter in model.parameters():
            if not parameter.requires_grad:
                yield parameter.nbytes // partitions, "weights"
    for buffer in model.buffers():
        yield buffer.nbytes, "weights"
    if not engine.optimizer_on_host:
        # Weights in 32 bits; the optimizer's own states come with its first step.
        yield FLOAT_BYTES * _elements(trained) // engine.ranks, "optimizer states"
    if engine.stage in (1, 2) and engine.optimizer_on_host:
        yield max(parameter.nbytes for parameter in trained), "ZeRO buffers"
    if engine.stage == 3 and not engine.optimizer_on_host:
        yield _partition_bytes(model, engine), "gradients"
    # A rank of its own trains with its partition itself.
    if partitions > 1 or engine.weights_on_host:
        yield _gathered_bytes(model, engine), "gathered parameters"


def _partition_bytes(model: torch.nn.Module, engine: ZeroEngine) -> int:
    """Gradients of the parameters that a rank updates."""
    return sum(parameter.nbytes for parameter in _trained(model)) // engine.ranks


def _gathered_bytes(model: torch.nn.Module, engine: ZeroEngine) -> int:
    """Whole parameters that stage 3 has at any time of a step: it gathers the next ones until
    ``stage3_max_live_parameters`` are (``_fetch_sub_module_impl`` of
    deepspeed/runtime/zero/partitioned_param_coordinator.py)."""
    whole = sum(parameter.nbytes for parameter in model.parameters())
    return min(whole, engine.live_elements * _trained(model)[0].element_size())


def _reduced_bytes(model: torch.nn.Module, engine: ZeroEngine) -> int:
    """The 32-bit copy of a full bucket beside weights on the host, as one recorded history of the
    allocator has it. A trial whose gradients all fit one bucket has none."""
    is_full = _elements(_trained(model)) > engine.bucket_elements
    return FLOAT_BYTES * engine.bucket_elements * (is_full and engine.weights_on_host)


def _elements(parameters: Iterable[torch.nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def _bucketed(stream: Stream, bucket_bytes: int) -> Stream:
    """The events of a micro-batch of stage 3 with its bucket; each gradient is freed at once."""
    # A number that no event of the stream has.
    number = 1 + max((event.number for event in stream.events), default=0)
    events: list[Event] = [
        Allocation(number=number, formula="tensor", integers=(bucket_bytes,), kind="ZeRO buffers")
    ]
    for event in stream.events:
        if isinstance(event, Allocation) and event.kind == "gradients":
            events += [event._replace(kind="temporary buffers"), Free(number=event.number)]
        else:
            events.append(event)
    return replace(stream, events=(*events, Free(number=number)))
