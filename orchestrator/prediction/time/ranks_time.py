"""Seconds of a step that several GPUs share: what each computes, what they exchange, their hosts.

What is exchanged runs beside the kernels, except for the first and the last collective operation
and for what takes longer than all kernels. The host launches kernels, and runs the engine's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.time.links import exchange_seconds
from orchestrator.prediction.time.operations import Sharing, StepWork
from orchestrator.prediction.time.step_time import Bound, StepTime, learned, step_time

_HOOK_SECONDS: Mapping[str, float] = {"fsdp2": 7e-4, "zero1": 2e-4, "zero2": 2e-4, "zero3": 7e-4}
"""Engine -> seconds of a host for each call of its code, beside the kernels of the trace. FSDP2:
tiny decoders on a CPU with torch 2.13, with the engine and without. First stages of DeepSpeed, an
estimate: about 17 launches more for each parameter, of 12 µs. Stage 3: the trial ``zero3`` of
tests/data/two_gpus_h100, 0.41 s for 340 parameters; it did not hold for the next decoder."""


def time_of(step: StepWork, gpu: Gpu) -> StepTime | None:
    """None for a card whose rates are not known, or whose link is not known."""
    alone = step_time(step, gpu)
    if alone is None or step.sharing is None:
        return alone
    exchange = exchange_seconds(step.sharing.exchanged, gpu, step.sharing.ranks)
    if exchange is None:
        return None
    slowest = learned()["host_spread"][1]
    host = alone.host_seconds + hook_seconds(step.sharing)
    of_gpu = alone.seconds + _waits(step.sharing, exchange, alone.seconds)
    # Without an engine's code, hosts keep up as they do on one GPU.
    seconds = max(of_gpu, host) if step.sharing.hooks else of_gpu
    return replace(
        alone,
        seconds=seconds,
        low=min(alone.low, of_gpu),
        # Nothing may run beside the exchange, and the host may be a slow one.
        high=max(alone.high + exchange, slowest * host),
        host_seconds=host,
        bound=_bound(of_gpu, host, slowest, step.sharing),
        mfu=None if alone.mfu is None else alone.mfu * alone.seconds / seconds,
    )


def _bound(of_gpu: float, host: float, slowest: float, sharing: Sharing) -> Bound:
    """An engine whose code takes a usual host longer than the GPU its kernels sets the pace."""
    if sharing.hooks and host > of_gpu:
        return "host"
    return "gpu" if of_gpu > slowest * host else "either"


def hook_seconds(sharing: Sharing) -> float:
    return sum(_HOOK_SECONDS[engine] * calls for engine, calls in sharing.hooks.items())


def _waits(sharing: Sharing, exchange: float, computing: float) -> float:
    """Seconds in which no kernel runs beside the exchange."""
    if not sharing.overlaps:
        return exchange
    ends = 2 * exchange / max(2.0, sharing.exchanged.launches())
    return max(ends, exchange - computing)
