"""A training step small enough to follow by hand, as the profiler would have traced it."""

from collections.abc import Iterable
from typing import Any

from jobs.anatomy.memory.timeline import KnownBlocks
from jobs.anatomy.trace import MemoryEvent, PhaseSpan, Trace, Work
from jobs.anatomy_record import Entry

WEIGHTS = 1
STATES = 2
INPUT = 3
COPY = 4
SAVED = 5
GRADIENT = 6
TEMPORARY = 7
RECOMPUTED = 8
COMPILED_CODE = 9
UNKNOWN = 99  # was there before the step
RELEASED = 98  # was there, too, but only its release is known
"""Addresses of the step's blocks."""

PHASES = (
    PhaseSpan("data", 0, 10),
    PhaseSpan("forward", 10, 30),
    PhaseSpan("backward", 30, 60),
    PhaseSpan("optimizer", 60, 70),
    PhaseSpan("upkeep", 70, 80),
)


def event(
    time: int, address: int, nbytes: int, operator: str = "aten::mm", **fields: Any
) -> MemoryEvent:
    """An allocation, or a release where ``nbytes`` is negative."""
    defaults = {"reserved": 2000, "copy_of": 0, "recomputed": False}
    return MemoryEvent(
        time=time, address=address, nbytes=nbytes, operator=operator, **{**defaults, **fields}
    )


STEP = Trace(
    phases=PHASES,
    memory_events=(
        event(1, INPUT, 8),
        event(12, COPY, 50, copy_of=WEIGHTS),
        event(14, SAVED, 300, "aten::addmm"),
        event(15, COMPILED_CODE, 20, ""),
        event(16, TEMPORARY, 40),
        event(17, TEMPORARY, -40),
        event(31, RECOMPUTED, 60, recomputed=True),
        event(35, GRADIENT, 100),
        event(40, RECOMPUTED, -60),
        event(45, SAVED, -300),
        event(46, COMPILED_CODE, -20),
        event(55, COPY, -50),
        event(71, GRADIENT, -100),
        event(72, INPUT, -8),
        event(73, UNKNOWN, -7),
        event(74, RELEASED, -9),
    ),
)
KNOWN = KnownBlocks(
    before={WEIGHTS: 100, STATES: 200, UNKNOWN: 7},
    names={WEIGHTS: "weights", STATES: "optimizer states"},
    gradients={GRADIENT},
    inputs={INPUT},
    parameters={WEIGHTS},
)


def kernel(begin: int, end: int, name: str, operator: str = "", launched: int = 15) -> Work:
    """A kernel that ran from ``begin`` to ``end`` (nanoseconds)."""
    return Work(
        begin=begin,
        end=end,
        seconds=(end - begin) / 1e9,
        kernel=name,
        operator=operator,
        launched=launched,
    )


BUSY_STEP = Trace(
    phases=PHASES,
    work=(
        kernel(5, 7, "Memcpy HtoD (Pageable -> Device)", "aten::copy_", launched=5),
        kernel(20, 30, "nvjet_hsh_128x256", "aten::mm"),
        kernel(25, 35, "reduce_kernel", "aten::native_layer_norm"),
        kernel(40, 44, "elementwise_kernel", "aten::gelu_backward", launched=40),
        kernel(62, 66, "multi_tensor_apply_kernel", "aten::_fused_adamw_", launched=62),
    ),
)
"""The product and the layer norm overlap by 5 ns."""


def nanoseconds(entries: Iterable[Entry], part: str) -> dict[str, int]:
    """Name -> time of a part's entries."""
    of_part = [entry for entry in entries if entry.part == part and entry.unit == "s"]
    return {entry.name: round(entry.value * 1e9) for entry in of_part}
