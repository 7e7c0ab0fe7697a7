"""A step's time by what the loop did: compute, data wait, launch-bound idle, logging."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jobs.anatomy.trace import PhaseIndex, Trace
from jobs.anatomy_record import Entry

HOST_TO_DEVICE = "host-to-device"
DATA_WAIT = "data wait"
LAUNCH_BOUND = "launch-bound idle"
LOGGING = "logging and synchronisation"
BACKWARD_TO_FORWARD = "backward / forward"


@dataclass(frozen=True, kw_only=True, slots=True)
class _PhaseTime:
    """How the device spent a phase, in seconds; the three parts add up to the phase."""

    name: str
    copying: float
    """Copies from the host."""
    busy: float
    idle: float


def phases(
    trace: Trace,
    phase_seconds: Mapping[str, float],
    *,
    step_seconds: float,
    host_updates: bool,
    on_gpu: bool,
) -> Iterator[Entry]:
    """The parts "phases" and "step".

    ``phase_seconds`` are the phases of a step without profiler, by the device's clock on a GPU.
    They become the part "phases". The part "step" adds up to ``step_seconds``, the time of a
    counted step. With ``host_updates`` the host updates the parameters while the device idles
    (offload).
    """
    for name, seconds in phase_seconds.items():
        yield Entry(part="phases", name=name, value=seconds, unit="s")
    busy = dict(phase_seconds)
    copying: dict[str, float] = {}
    if on_gpu:
        busy, copying = _device_seconds(trace)
    yield from _backward_ratio(busy)
    times = _phase_times(phase_seconds, busy, copying)
    for name, seconds in _parts_of_step(times, step_seconds, host_updates=host_updates).items():
        if seconds > 0:
            yield Entry(part="step", name=name, value=seconds, unit="s")


def _backward_ratio(busy: Mapping[str, float]) -> Iterator[Entry]:
    """Computing seconds of the backward pass over those of the forward pass."""
    if busy.get("forward"):
        # Idle time is left out, because it comes from the host and not from the passes.
        ratio = busy.get("backward", 0.0) / busy["forward"]
        yield Entry(part="phases", name=BACKWARD_TO_FORWARD, value=ratio, unit="")


def _device_seconds(trace: Trace) -> tuple[dict[str, float], dict[str, float]]:
    """Phase -> seconds of the kernels launched in it; phase -> seconds of copies from the host."""
    index = PhaseIndex(trace.phases)
    busy: defaultdict[str, float] = defaultdict(float)
    copying: defaultdict[str, float] = defaultdict(float)
    for work in trace.work:
        phase = index.at(work.launched).name
        # The trace has only some of a step's micro-batches.
        seconds = work.seconds * trace.weight(phase)
        if work.kernel.startswith("Memcpy HtoD"):
            copying[phase] += seconds
        else:
            busy[phase] += seconds
    return dict(busy), dict(copying)


def _phase_times(
    phase_seconds: Mapping[str, float], busy: Mapping[str, float], copying: Mapping[str, float]
) -> list[_PhaseTime]:
    """Split each phase into copies, kernels and idle time.

    The profiled step can be slower than the timed one, so no part may exceed its phase.
    """
    times = []
    for name, seconds in phase_seconds.items():
        # Copies come first, then kernels. The rest of the phase is idle time.
        copied = min(copying.get(name, 0.0), seconds)
        worked = min(busy.get(name, 0.0), seconds - copied)
        idle = seconds - copied - worked
        times.append(_PhaseTime(name=name, copying=copied, busy=worked, idle=idle))
    return times


def _parts_of_step(
    times: Sequence[_PhaseTime], step_seconds: float, *, host_updates: bool
) -> dict[str, float]:
    """Name -> seconds of the counted step.

    The parts add up to the step, unless copies and kernels alone take longer than it.
    """
    idle_scale = _idle_scale(times, step_seconds)
    parts: defaultdict[str, float] = defaultdict(float)
    for time in times:
        # Scaled from the timed step to the counted one.
        idle_seconds = time.idle * idle_scale
        parts[HOST_TO_DEVICE] += time.copying
        part = _part_with_idle_time(time.name, host_updates=host_updates)
        if part:
            parts[part] += time.busy + idle_seconds
        else:
            parts[time.name] += time.busy
            parts[LAUNCH_BOUND] += idle_seconds
    return dict(parts)


def _idle_scale(times: Sequence[_PhaseTime], step_seconds: float) -> float:
    """Factor by which the idle times of the timed step become those of the counted step.

    The device works equally long in every step, but the host's speed varies. So only the idle time
    differs between the two steps. It is scaled to fill the counted step.
    """
    copying = sum(time.copying for time in times)
    busy = sum(time.busy for time in times)
    idle = sum(time.idle for time in times)
    if idle <= 0:
        return 0.0
    return max(0.0, step_seconds - (copying + busy)) / idle


def _part_with_idle_time(phase: str, *, host_updates: bool) -> str:
    """The part that a phase counts as, idle time included.

    Empty: the phase's idle time is launch-bound, which is a part of its own.
    """
    if phase == "upkeep":
        return LOGGING
    if phase == "data":
        return DATA_WAIT
    if host_updates and phase in ("optimizer", "clipping"):
        return phase
    return ""
