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

    ``phase_seconds`` are those of a step without profiler, by the device's clock on a GPU. They are
    the part "phases". ``step_seconds`` is the counted step: "step" adds up to it. With
    ``host_updates`` the host updates the parameters while the device idles (offload).
    """
    for name, seconds in phase_seconds.items():
        yield Entry(part="phases", name=name, value=seconds, unit="s")
    if on_gpu:
        busy, copying = _device_seconds(trace)
    else:
        busy, copying = dict(phase_seconds), {}
    if busy.get("forward"):
        ratio = busy.get("backward", 0.0) / busy["forward"]
        yield Entry(part="phases", name=BACKWARD_TO_FORWARD, value=ratio, unit="")
    times = _phase_times(phase_seconds, busy, copying)
    for name, seconds in _parts_of_step(times, step_seconds, host_updates=host_updates).items():
        if seconds > 0:
            yield Entry(part="step", name=name, value=seconds, unit="s")


def _device_seconds(trace: Trace) -> tuple[dict[str, float], dict[str, float]]:
    """Phase -> seconds of the kernels launched in it; phase -> seconds of copies from the host."""
    index = PhaseIndex(trace.phases)
    busy: defaultdict[str, float] = defaultdict(float)
    copying: defaultdict[str, float] = defaultdict(float)
    for work in trace.work:
        phase = index.at(work.launched).name
        is_copy = work.kernel.startswith("Memcpy HtoD")
        seconds_by_phase = copying if is_copy else busy
        seconds_by_phase[phase] += work.seconds * trace.weight(phase)
    return dict(busy), dict(copying)


def _phase_times(
    phase_seconds: Mapping[str, float], busy: Mapping[str, float], copying: Mapping[str, float]
) -> list[_PhaseTime]:
    """Split each phase. The profiled step can be slower than the timed one: figures are capped."""
    times = []
    for name, seconds in phase_seconds.items():
        copied = min(copying.get(name, 0.0), seconds)
        worked = min(busy.get(name, 0.0), seconds - copied)
        idle = seconds - copied - worked
        times.append(_PhaseTime(name=name, copying=copied, busy=worked, idle=idle))
    return times


def _parts_of_step(
    times: Sequence[_PhaseTime], step_seconds: float, *, host_updates: bool
) -> dict[str, float]:
    """Name -> seconds of the counted step.

    The device works for as long in every step. The host is never equally quick twice, so the idle
    time is what differs between the timed and the counted step: it is scaled to fill the latter.
    """
    filled = sum(time.copying for time in times) + sum(time.busy for time in times)
    idle = sum(time.idle for time in times)
    idle_scale = max(0.0, step_seconds - filled) / idle if idle > 0 else 0.0
    parts: defaultdict[str, float] = defaultdict(float)
    for time in times:
        idle_seconds = time.idle * idle_scale
        parts[HOST_TO_DEVICE] += time.copying
        if time.name == "upkeep":
            parts[LOGGING] += time.busy + idle_seconds
        elif time.name == "data":
            parts[DATA_WAIT] += time.busy + idle_seconds
        elif host_updates and time.name in ("optimizer", "clipping"):
            parts[time.name] += time.busy + idle_seconds
        else:
            parts[time.name] += time.busy
            parts[LAUNCH_BOUND] += idle_seconds
    return dict(parts)
