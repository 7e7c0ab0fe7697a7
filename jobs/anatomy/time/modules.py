"""A step's time by the class of the module that it was spent in, forward and backward together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from jobs.anatomy.trace import MODULE, Trace
from jobs.anatomy_record import Entry

if TYPE_CHECKING:
    import torch

OUTSIDE = "outside all modules"
_PASSES = ("forward", "backward")


def modules(trace: Trace, phase_at: Callable[[int], str]) -> Iterator[Entry]:
    """The part "modules", the longest first: it adds up to the operators' time in the forward and backward passes."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for work in trace.work:
        phase = phase_at(work.launched)
        if phase in _PASSES:
            seconds[work.module or OUTSIDE] += work.seconds * trace.weight(phase)
    if seconds.keys() == {OUTSIDE}:
        return
    for name, spent in sorted(seconds.items(), key=lambda pair: -pair[1]):
        yield Entry(part="modules", name=name, value=spent, unit="s")


@contextmanager
def ranges(model: torch.nn.Module) -> Iterator[None]:
    """Have the profiler told which module's forward pass begins and ends."""
    from torch.autograd.profiler import record_function

    opened: list[record_function] = []

    def open_range(module: torch.nn.Module, _: Any) -> None:
        opened.append(record_function(MODULE + name_of(module)))
        opened[-1].__enter__()

    def close_range(*_: Any) -> None:
        opened.pop().__exit__(None, None, None)

    with ExitStack() as hooks:
        for module in model.modules():
            if module is model or not _is_part(module):
                hooks.callback(module.register_forward_pre_hook(open_range).remove)
                hooks.callback(module.register_forward_hook(close_range, always_call=True).remove)
        yield


def is_compiled(model: torch.nn.Module) -> bool:
    """Whether a compiler took some of its modules: ranges in them would have them compiled anew."""
    return any(
        getattr(one, "_compiled_call_impl", None) or hasattr(one, "_orig_mod")
        for one in model.modules()
    )


def name_of(module: torch.nn.Module) -> str:
    """A module's class; with its package where torch.nn has one of that name, as in ``peft.Linear``."""
    import torch

    kind = type(module)
    package = kind.__module__.partition(".")[0]
    return (
        f"{package}.{kind.__name__}"
        if package != "torch" and hasattr(torch.nn, kind.__name__)
        else kind.__name__
    )


def _is_part(module: torch.nn.Module) -> bool:
    """Whether this is one of torch.nn's blocks, which count with what they are in, and no normalization."""
    kind = type(module)
    return kind.__module__.startswith("torch.nn.") and "Norm" not in kind.__name__
