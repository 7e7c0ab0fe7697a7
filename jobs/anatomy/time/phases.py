"""A step's time by what the loop did: working, waiting for data, waiting for launches, logging."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from jobs.anatomy.trace import Trace
from jobs.anatomy_record import Entry

HOST_TO_DEVICE = "host-to-device"
DATA_WAIT = "data wait"
LAUNCH_BOUND = "launch-bound idle"
LOGGING = "logging and synchronisation"
BACKWARD_TO_FORWARD = "backward / forward"


def phase_reader(trace: Trace) -> Callable[[int], str]:
    """What the loop was doing at a time of the trace."""
    begins = [begin for _, begin, _ in trace.phases]

    def at(time: int) -> str:
        place = bisect.bisect_right(begins, time) - 1
        return trace.phases[place][0] if place >= 0 else "upkeep"

    return at


def phases(
    trace: Trace,
    timed: Mapping[str, float],
    *,
    step_seconds: float,
    host_updates: bool,
    on_gpu: bool,
) -> Iterator[Entry]:
    """The parts "phases" and "step".

    ``timed`` is phase -> seconds of a step that nobody profiled, on the device where there is one. What no kernel of
    the profiled step filled of that was idle; with ``host_updates`` the host was updating the parameters meanwhile.
    "phases" is as timed. "step" adds up to ``step_seconds``, the step that counted: a host is never as quick twice, so
    it is what was idle that gives way, in proportion.
    """
    for name, seconds in timed.items():
        yield Entry(part="phases", name=name, value=seconds, unit="s")
    busy, copied = _busy(trace) if on_gpu else (dict(timed), {})
    if busy.get("forward"):
        ratio = busy.get("backward", 0.0) / busy["forward"]
        yield Entry(part="phases", name=BACKWARD_TO_FORWARD, value=ratio, unit="")
    moving = {name: min(copied.get(name, 0.0), seconds) for name, seconds in timed.items()}
    working = {
        name: min(busy.get(name, 0.0), seconds - moving[name]) for name, seconds in timed.items()
    }
    filled, whole = sum(moving.values()) + sum(working.values()), sum(timed.values())
    slack = max(0.0, step_seconds - filled) / (whole - filled) if whole > filled else 0.0
    parts: defaultdict[str, float] = defaultdict(float)
    for name, seconds in timed.items():
        worked = working[name]
        idle = (seconds - moving[name] - worked) * slack
        parts[HOST_TO_DEVICE] += moving[name]
        if name == "upkeep":
            parts[LOGGING] += worked + idle
        elif name == "data":
            parts[DATA_WAIT] += worked + idle
        else:
            at_work = host_updates and name in ("optimizer", "clipping")
            parts[name] += worked + (idle if at_work else 0.0)
            parts[LAUNCH_BOUND] += 0.0 if at_work else idle
    for name, seconds in parts.items():
        if seconds > 0:
            yield Entry(part="step", name=name, value=seconds, unit="s")


def _busy(trace: Trace) -> tuple[dict[str, float], dict[str, float]]:
    """Phase -> seconds of kernels launched in it; phase -> seconds of copies from the host."""
    at = phase_reader(trace)
    busy: defaultdict[str, float] = defaultdict(float)
    copied: defaultdict[str, float] = defaultdict(float)
    for work in trace.work:
        chosen, phase = copied if work.kernel.startswith("Memcpy HtoD") else busy, at(work.launched)
        chosen[phase] += work.seconds * trace.weight(phase)
    return dict(busy), dict(copied)
