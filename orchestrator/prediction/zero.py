"""DeepSpeed's engine on one GPU: weights in the training precision, flat buffers, buckets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from jobs.spec import TrialSpec
from orchestrator.prediction.affine_stream import Allocation, Event, Free, Stream
from orchestrator.prediction.replay import TrialStreams

_BUCKET_ELEMENTS = 500_000_000
"""``reduce_bucket_size`` if the configuration names none."""
_LIVE_ELEMENTS = 1_000_000_000
"""``stage3_max_live_parameters`` if the configuration names none."""
_FLOAT_BYTES = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class ZeroEngine:
    """The part of a DeepSpeed configuration that decides memory on the GPU."""

    stage: int
    optimizer_on_host: bool
    bucket_elements: int
    live_elements: int
    """Parameters of which stage 3 keeps the gathered weights between their uses."""

    @classmethod
    def of(cls, spec: TrialSpec, hidden_size: int) -> ZeroEngine:
        """As the trial's configuration says.

        For "auto" buckets transformers takes the square of the model's ``hidden_size``.
        """
        config = spec.settings.deepspeed or {}
        zero = config.get("zero_optimization", {})
        bucket = zero.get("reduce_bucket_size", _BUCKET_ELEMENTS)
        if bucket == "auto":
            bucket = hidden_size**2
        live = zero.get("stage3_max_live_parameters", _LIVE_ELEMENTS)
        return cls(
            stage=int(zero.get("stage", 0)),
            optimizer_on_host=(zero.get("offload_optimizer") or {}).get("device") == "cpu",
            bucket_elements=int(float(bucket)),
            live_elements=int(float(live)),
        )

    def unpredictable(self, model: torch.nn.Module) -> str:
        """Why nothing is predicted of this model under the engine; empty if something is."""
        elements = sum(parameter.numel() for parameter in model.parameters())
        if self.stage == 3 and elements > self.live_elements:
            return (
                "ZeRO-3 gathers and releases the weights of a model beyond its limit of live "
                "parameters"
            )
        return ""


def cast(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Cast parameters and buffers as the engine does; shared parameters stay shared."""
    # Shared parameters are met more than once, and cast once.
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
    """The trial's streams under the engine. ``model`` has the training precision already.

    Each gradient is copied to a bucket and freed; see deepspeed/runtime/zero/stage_1_and_2.py and
    stage3.py. Up to stage 2 the first gradient of a backward pass makes the bucket. Stage 3 has it
    from the start, and reduces it on a CUDA stream of its own, whose cached memory no other stream
    gets.
    """
    is_stage_3 = engine.stage == 3
    # Stage 0 has no buckets.
    bucket_bytes = 0
    if engine.stage:
        bucket_bytes = engine.bucket_elements * _Trained.of(model).element_bytes
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
    """A model's trained parameters."""

    elements: int
    element_bytes: int
    largest_elements: int
    """Elements of the largest parameter."""

    @classmethod
    def of(cls, model: torch.nn.Module) -> _Trained:
        """The parameters of a model that get gradients."""
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
    """What is allocated from the first step to the last."""
    sizes = _resident_sizes(model, engine)
    for number, (nbytes, kind) in enumerate(sizes, start=1):
        yield Allocation(number=number, formula="tensor", integers=(nbytes,), kind=kind)


def _resident_sizes(model: torch.nn.Module, engine: ZeroEngine) -> Iterator[tuple[int, str]]:
    """Bytes and kind of each buffer, in order."""
    trained = _Trained.of(model)
    # All weights lie in one flat buffer, except those that are not trained.
    yield trained.nbytes, "weights"
    for parameter in model.parameters():
        if not parameter.requires_grad:
            yield parameter.nbytes, "weights"
    for buffer in model.buffers():
        yield buffer.nbytes, "weights"
    if not engine.optimizer_on_host:
        for _ in ("32-bit weights", "first moment", "second moment"):
            yield _FLOAT_BYTES * trained.elements, "optimizer states"
    if engine.stage in (1, 2) and engine.optimizer_on_host:
        yield trained.largest_elements * trained.element_bytes, "ZeRO buffers"
    if engine.stage == 3 and not engine.optimizer_on_host:
        yield trained.nbytes, "gradients"


def _update_events(model: torch.nn.Module, engine: ZeroEngine) -> Iterator[Event]:
    """An update on the GPU flattens the gradients and converts them to 32 bits."""
    if engine.optimizer_on_host:
        return
    # One flat copy of the gradients in the training precision, one in 32 bits.
    trained = _Trained.of(model)
    sizes = [_FLOAT_BYTES * trained.elements]
    if engine.stage in (1, 2):
        sizes.insert(0, trained.nbytes)
    numbers = range(1, len(sizes) + 1)
    for number, nbytes in zip(numbers, sizes, strict=True):
        kind = "temporary buffers"
        yield Allocation(number=number, formula="tensor", integers=(nbytes,), kind=kind)
    for number in numbers:
        yield Free(number=number)


def _bucketed(stream: Stream, bucket_bytes: int, *, from_start: bool) -> Stream:
    """A micro-batch whose gradients are freed at once: their bucket holds them until it is over.

    If the first gradient makes the bucket, the operator that computed the gradient has freed its
    inputs before.
    """
    if not bucket_bytes:
        return stream
    # A number that no event of the stream has.
    number = 1 + max(event.number for event in stream.events)
    bucket = Allocation(
        number=number, formula="tensor", integers=(bucket_bytes,), kind="ZeRO buffers"
    )
    position = 0
    if not from_start:
        position = _first_allocation_after_a_gradient(stream.events)
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
    """The position of the first allocation that follows a free after a gradient; -1 for none."""
    # First a gradient, then the frees of its inputs, then the bucket.
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
