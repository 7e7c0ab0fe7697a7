"""Predicts what DeepSpeed's engine allocates on one GPU: weights, flat buffers and buckets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from jobs.spec import TrialSpec
from orchestrator.prediction.affine_stream import Allocation, Event, Free, Stream
from orchestrator.prediction.kernel_memory import FLOAT_BYTES
from orchestrator.prediction.replay import TrialStreams


@dataclass(frozen=True, kw_only=True, slots=True)
class ZeroEngine:
    """The values of a DeepSpeed configuration that decide memory on the GPU."""

    stage: int
    optimizer_on_host: bool
    bucket_elements: int
    live_elements: int
    """Most parameters whose gathered weights stage 3 keeps between their uses."""

    @classmethod
    def of(cls, spec: TrialSpec, hidden_size: int) -> ZeroEngine:
        """The engine of a trial's configuration.

        If the bucket size is "auto", transformers takes the square of the model's ``hidden_size``.
        """
        config = spec.settings.deepspeed or {}
        zero = config.get("zero_optimization", {})
        # The numbers are DeepSpeed's own defaults.
        bucket = zero.get("reduce_bucket_size", 500_000_000)
        if bucket == "auto":
            # As in ``HfTrainerDeepSpeedConfig.trainer_config_finalize`` of transformers.
            bucket = hidden_size**2
        live = zero.get("stage3_max_live_parameters", 1_000_000_000)
        return cls(
            stage=int(zero.get("stage", 0)),
            optimizer_on_host=(zero.get("offload_optimizer") or {}).get("device") == "cpu",
            bucket_elements=int(float(bucket)),
            live_elements=int(float(live)),
        )

    def unpredictable(self, model: torch.nn.Module) -> str:
        """Why memory cannot be predicted for this model with the engine; empty if it can."""
        elements = sum(parameter.numel() for parameter in model.parameters())
        if self.stage == 3 and elements > self.live_elements:
            return (
                "ZeRO-3 gathers and releases the weights of a model beyond its limit of live "
                "parameters"
            )
        return ""


def cast(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Cast parameters and buffers as the engine does; shared parameters stay shared."""
    # The loop meets shared parameters more than once, but casts them once. The key is the id of the
    # old and of the new parameter.
    casts: dict[int, torch.nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            if id(parameter) not in casts:
                weights = parameter.detach().to(dtype)
                copy = torch.nn.Parameter(weights, parameter.requires_grad)
                casts |= {id(parameter): copy, id(copy): copy}
            module._parameters[name] = casts[id(parameter)]
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                module._buffers[name] = buffer.to(dtype)


def trial_streams(
    model: torch.nn.Module,
    engine: ZeroEngine,
    first: Stream,
    later: Stream | None,
    accumulation: int,
) -> TrialStreams:
    """The allocations of a trial with the engine. ``model`` already has the training precision.

    Each gradient is copied to a bucket and freed; see deepspeed/runtime/zero/stage_1_and_2.py and
    stage3.py. Up to stage 2, the first gradient of a backward pass allocates the bucket. Stage 3
    has the bucket from the start. It reduces the bucket on a CUDA stream of its own, whose cached
    memory no other stream can use.
    """
    is_stage_3 = engine.stage == 3
    element_bytes = _Trained.of(model).element_bytes
    bucket_bytes = engine.bucket_elements * element_bytes if engine.stage else 0
    update = Stream(events=tuple(_update_events(model, engine)))
    return TrialStreams(
        model=Stream(events=tuple(_resident_events(model, engine))),
        first=_bucketed(first, bucket_bytes, from_start=is_stage_3),
        later=later and _bucketed(later, bucket_bytes, from_start=is_stage_3),
        accumulation=accumulation,
        first_update=update,
        update=update,
        reserved_elsewhere=bucket_bytes if is_stage_3 else 0,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Trained:
    """Sizes of a model's trained parameters."""

    elements: int
    element_bytes: int
    largest_elements: int
    """Elements of the largest parameter."""

    @classmethod
    def of(cls, model: torch.nn.Module) -> _Trained:
        """The sizes of the parameters of a model that get gradients."""
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        sizes = [parameter.numel() for parameter in parameters]
        return cls(
            elements=sum(sizes),
            element_bytes=parameters[0].element_size(),
            largest_elements=max(sizes),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all trained parameters in the training precision."""
        return self.elements * self.element_bytes


def _resident_events(model: torch.nn.Module, engine: ZeroEngine) -> Iterator[Event]:
    """Allocations that live from the first step to the last."""
    for number, (nbytes, kind) in enumerate(_resident_sizes(model, engine), start=1):
        yield Allocation(number=number, formula="tensor", integers=(nbytes,), kind=kind)


def _resident_sizes(model: torch.nn.Module, engine: ZeroEngine) -> Iterator[tuple[int, str]]:
    """Bytes and kind of each buffer that lives during all steps, in order of allocation."""
    trained = _Trained.of(model)
    # All trained weights lie in one flat buffer. Others have their own.
    yield trained.nbytes, "weights"
    for parameter in model.parameters():
        if not parameter.requires_grad:
            yield parameter.nbytes, "weights"
    for buffer in model.buffers():
        yield buffer.nbytes, "weights"
    if not engine.optimizer_on_host:
        for _ in ("32-bit weights", "first moment", "second moment"):
            yield FLOAT_BYTES * trained.elements, "optimizer states"
    if engine.stage in (1, 2) and engine.optimizer_on_host:
        yield trained.largest_elements * trained.element_bytes, "ZeRO buffers"
    if engine.stage == 3 and not engine.optimizer_on_host:
        yield trained.nbytes, "gradients"


def _update_events(model: torch.nn.Module, engine: ZeroEngine) -> Iterator[Event]:
    """The temporary buffers of an update; none if the optimizer is on the host.

    An update on the GPU flattens the gradients and converts them to 32 bits.
    """
    if engine.optimizer_on_host:
        return
    # Stages 1 and 2 make a flat copy of the gradients in the training precision. All make one in
    # 32 bits.
    trained = _Trained.of(model)
    sizes = [FLOAT_BYTES * trained.elements]
    if engine.stage in (1, 2):
        sizes.insert(0, trained.nbytes)
    numbers = range(1, len(sizes) + 1)
    for number, nbytes in zip(numbers, sizes, strict=True):
        kind = "temporary buffers"
        yield Allocation(number=number, formula="tensor", integers=(nbytes,), kind=kind)
    for number in numbers:
        yield Free(number=number)


def _bucketed(stream: Stream, bucket_bytes: int, *, from_start: bool) -> Stream:
    """The events of a micro-batch with a bucket, in which each gradient is freed at once.

    The bucket lives until the end of the micro-batch. If the first gradient allocates it, it comes
    after the operator of that gradient has freed its inputs.
    """
    if not bucket_bytes:
        return stream
    # A number that no event of the stream has.
    number = 1 + max(event.number for event in stream.events)
    bucket = Allocation(
        number=number, formula="tensor", integers=(bucket_bytes,), kind="ZeRO buffers"
    )
    position = 0 if from_start else _first_allocation_after_a_gradient(stream.events)
    events: list[Event] = []
    for index, event in enumerate(stream.events):
        if index == position:
            events.append(bucket)
        if isinstance(event, Allocation) and event.kind == "gradients":
            events += [replace(event, kind="temporary buffers"), Free(number=event.number)]
        else:
            events.append(event)
    return replace(stream, events=(*events, Free(number=number)))


def _first_allocation_after_a_gradient(events: Sequence[Event]) -> int:
    """The position of the first allocation after a gradient and then a free; -1 if none is."""
    has_gradient = False
    has_freed_inputs = False
    for index, event in enumerate(events):
        if isinstance(event, Free):
            has_freed_inputs = has_gradient
        elif has_freed_inputs:
            return index
        elif event.kind == "gradients":
            has_gradient = True
    return -1
