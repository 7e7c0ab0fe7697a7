"""A step's time by what the loop did, and by the class of the module that spent it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from jobs.anatomy.trace import Trace
from jobs.anatomy.trace_reader import MODULE
from jobs.anatomy_record import Entry

if TYPE_CHECKING:
    import torch

BACKWARD_TO_FORWARD = "backward / forward"


class _PhaseTime(NamedTuple):
    """How the device spent a phase, in seconds; the three parts add up to the phase."""

    copying: float  # from the host
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
    """The parts "phases" and "step", which adds up to ``step_seconds``, the time of a counted step.
    ``phase_seconds`` are of a step without profiler. ``host_updates``: the host updates (offload).
    """
    for name, seconds in phase_seconds.items():
        yield Entry(part="phases", name=name, value=seconds, unit="s")
    # On a CPU all is work.
    busy: defaultdict[str, float] = defaultdict(float, {} if on_gpu else phase_seconds)
    copying: defaultdict[str, float] = defaultdict(float)
    for work, phase, seconds in trace.weighted_work() if on_gpu else ():
        (copying if work.kernel.startswith("Memcpy HtoD") else busy)[phase] += seconds
    if busy["forward"]:
        # Without idle time, which comes from the host and not from the passes.
        ratio = busy["backward"] / busy["forward"]
        yield Entry(part="phases", name=BACKWARD_TO_FORWARD, value=ratio, unit="")
    times: dict[str, _PhaseTime] = {}
    for name, seconds in phase_seconds.items():
        # The profiled step can be slower than the timed one, so no part may exceed its phase.
        copied = min(copying[name], seconds)
        worked = min(busy[name], seconds - copied)
        times[name] = _PhaseTime(copied, worked, seconds - copied - worked)
    for name, seconds in _parts_of_step(times, step_seconds, host_updates=host_updates).items():
        if seconds > 0:
            yield Entry(part="step", name=name, value=seconds, unit="s")


def _parts_of_step(
    times: Mapping[str, _PhaseTime], step_seconds: float, *, host_updates: bool
) -> dict[str, float]:
    # The host's speed varies, so only idle time is scaled from the timed step to the counted one.
    working = sum(time.copying + time.busy for time in times.values())
    idle = sum(time.idle for time in times.values())
    idle_scale = max(0.0, step_seconds - working) / idle if idle > 0 else 0.0
    # Phases that count with their idle time. That of all others is launch-bound.
    whole = {"upkeep": "logging and synchronisation", "data": "data wait"}
    if host_updates:
        whole |= {"optimizer": "optimizer", "clipping": "clipping"}
    parts: defaultdict[str, float] = defaultdict(float)
    for name, time in times.items():
        parts["host-to-device"] += time.copying
        parts[whole.get(name, name)] += time.busy
        parts[whole.get(name, "launch-bound idle")] += time.idle * idle_scale
    return dict(parts)


OUTSIDE = "outside all modules"


def modules(trace: Trace) -> Iterator[Entry]:
    """The part "modules": all of the forward and backward passes, longest first."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for work, phase, spent in trace.weighted_work():
        if phase in ("forward", "backward"):
            seconds[work.module or OUTSIDE] += spent
    # Where no module was marked, a table of one row would say nothing.
    if seconds.keys() == {OUTSIDE}:
        return
    for name, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        yield Entry(part="modules", name=name, value=spent, unit="s")


@contextmanager
def module_ranges(model: torch.nn.Module) -> Iterator[None]:
    """While the context lasts, a profiler range surrounds the forward pass of each module. Blocks
    of ``torch.nn`` but normalizations count with the module around them."""
    from torch.autograd.profiler import record_function

    open_ranges: list[record_function] = []

    def open_range(module: torch.nn.Module, _: Any) -> None:
        opened = record_function(MODULE + class_name(module))
        opened.__enter__()
        open_ranges.append(opened)

    def close_range(*_: Any) -> None:
        open_ranges.pop().__exit__(None, None, None)

    with ExitStack() as handles:
        for module in model.modules():
            kind = type(module)
            is_block = kind.__module__.startswith("torch.nn.") and "Norm" not in kind.__name__
            if module is model or not is_block:
                # Hooks run even if the forward pass raises, so that the stack stays in order.
                before = module.register_forward_pre_hook(open_range)
                after = module.register_forward_hook(close_range, always_call=True)
                handles.callback(before.remove)
                handles.callback(after.remove)
        yield


def class_name(module: torch.nn.Module) -> str:
    """A module's class, with its package if ``torch.nn`` has such a class too: ``peft.Linear``."""
    import torch

    kind = type(module)
    package = kind.__module__.partition(".")[0]
    if package != "torch" and hasattr(torch.nn, kind.__name__):
        return f"{package}.{kind.__name__}"
    return kind.__name__
