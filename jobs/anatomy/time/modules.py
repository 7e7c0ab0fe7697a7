"""A step's time by the class of the module that spent it, forward and backward together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from jobs.anatomy.trace import Trace
from jobs.anatomy.trace_reader import MODULE
from jobs.anatomy_record import Entry

if TYPE_CHECKING:
    import torch

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
