"""DeepSpeed's engine on one GPU: weights in the training precision, flat partitions, gradient buckets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from jobs.spec import TrialSpec
from orchestrator.prediction.affine_stream import Allocation, Event, Free, Stream
from orchestrator.prediction.replay import Trial

_BUCKET_ELEMENTS = 500_000_000
"""``reduce_bucket_size`` where the configuration names none."""
_LIVE_ELEMENTS = 1_000_000_000
"""``stage3_max_live_parameters`` where the configuration names none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """What of the DeepSpeed configuration decides memory on the GPU."""

    stage: int
    optimizer_on_host: bool
    bucket_elements: int
    live_elements: int
    """Of how many parameters stage 3 keeps the gathered weights between their uses."""

    @classmethod
    def of(cls, spec: TrialSpec, hidden_size: int) -> Engine:
        """As the configuration says; "auto" buckets are what transformers makes of them."""
        config = spec.recipe.deepspeed or {}
        zero = config.get("zero_optimization", {})
        bucket = zero.get("reduce_bucket_size", _BUCKET_ELEMENTS)
        return cls(
            stage=int(zero.get("stage", 0)),
            optimizer_on_host=(zero.get("offload_optimizer") or {}).get("device") == "cpu",
            bucket_elements=hidden_size**2 if bucket == "auto" else int(float(bucket)),
            live_elements=int(float(zero.get("stage3_max_live_parameters", _LIVE_ELEMENTS))),
        )

    def unknown(self, model: torch.nn.Module) -> str:
        """Why nothing can be said of this model under the engine; empty where something can."""
        elements = sum(parameter.numel() for parameter in model.parameters())
        if self.stage == 3 and elements > self.live_elements:
            return "ZeRO-3 gathers and releases the weights of a model beyond its limit of live parameters"
        return ""


def cast(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Parameters and buffers in ``dtype``, shared ones still shared, as the engine casts them."""
    met: dict[int, torch.nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            if id(parameter) not in met:
                made = torch.nn.Parameter(parameter.detach().to(dtype), parameter.requires_grad)
                met |= {id(parameter): made, id(made): made}
            module._parameters[name] = met[id(parameter)]
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                module._buffers[name] = buffer.to(dtype)


def trial(
    model: torch.nn.Module, engine: Engine, first: Stream, later: Stream | None, accumulation: int
) -> Trial:
    """The trial's streams under the engine. ``model`` has the training precision already.

    Each gradient is copied to a bucket and goes; see deepspeed/runtime/zero/stage_1_and_2.py and stage3.py. Up to
    stage 2 the first gradient of a backward pass brings the bucket; stage 3 has it from the start, and reduces it on a
    stream of its own, whose cached memory no other stream gets.
    """
    _, element, _ = _trained(model)
    bucket = engine.bucket_elements * element if engine.stage else 0
    update = Stream(events=tuple(_step(model, engine)))
    return Trial(
        model=Stream(events=tuple(_resident(model, engine))),
        first=_bucketed(first, bucket, early=engine.stage == 3),
        later=later and _bucketed(later, bucket, early=engine.stage == 3),
        accumulation=accumulation,
        first_update=update,
        update=update,
        reserved_elsewhere=bucket if engine.stage == 3 else 0,
    )


def _resident(model: torch.nn.Module, engine: Engine) -> Iterator[Event]:
    """What is there from the first step to the last."""
    trained, element, largest = _trained(model)
    frozen = [p.nbytes for p in model.parameters() if not p.requires_grad]
    sizes = [
        (nbytes, "weights")
        for nbytes in (trained * element, *frozen, *(b.nbytes for b in model.buffers()))
    ]
    if not engine.optimizer_on_host:
        sizes += [(4 * trained, "optimizer states")] * 3  # 32-bit weights and two moments
    if engine.stage in (1, 2) and engine.optimizer_on_host:
        sizes.append((largest * element, "ZeRO buffers"))
    if engine.stage == 3 and not engine.optimizer_on_host:
        sizes.append((trained * element, "gradients"))
    for number, (nbytes, kind) in enumerate(sizes, start=1):
        yield Allocation(number=number, formula="tensor", integers=(nbytes,), kind=kind)


def _step(model: torch.nn.Module, engine: Engine) -> Iterator[Event]:
    """An update on the GPU flattens the gradients and raises them to 32 bits."""
    if engine.optimizer_on_host:
        return
    trained, element, _ = _trained(model)
    sizes = [4 * trained] if engine.stage in (0, 3) else [trained * element, 4 * trained]
    for number, nbytes in enumerate(sizes, start=1):
        yield Allocation(
            number=number, formula="tensor", integers=(nbytes,), kind="temporary buffers"
        )
    for number in range(1, len(sizes) + 1):
        yield Free(number=number)


def _trained(model: torch.nn.Module) -> tuple[int, int, int]:
    """Trained elements, bytes of one, elements of the largest parameter."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    return (
        sum(p.numel() for p in parameters),
        parameters[0].element_size(),
        max(p.numel() for p in parameters),
    )


def _bucketed(stream: Stream, bucket: int, *, early: bool) -> Stream:
    """Gradients are freed as soon as they are there: their bucket holds them, until the pass is over.

    Where it comes with the first gradient, the operator that made that has given back its inputs before.
    """
    if not bucket:
        return stream
    number = 1 + max(event.number for event in stream.events)
    buffer = Allocation(number=number, formula="tensor", integers=(bucket,), kind="ZeRO buffers")
    events: list[Event] = [buffer] if early else []
    held, made, freed = early, False, False
    for event in stream.events:
        if isinstance(event, Free):
            freed = made
            events.append(event)
            continue
        if freed and not held:
            events.append(buffer)
            held = True
        if event.kind == "gradients":
            made = True
            events += [replace(event, kind="temporary buffers"), Free(number=event.number)]
        else:
            events.append(event)
    return replace(stream, events=(*events, Free(number=number)))
