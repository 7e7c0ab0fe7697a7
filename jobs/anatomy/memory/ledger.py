"""From the bytes of tensors at the peak to what NVML saw of the GPU: entries that add up, the rest printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobs.anatomy.memory.kinds import kind_of
from jobs.anatomy.memory.live_tensors import Resident
from jobs.anatomy.memory.timeline import Memory
from jobs.anatomy_record import Entry, Part

CACHED = "cached by the allocator"
CONTEXT = "CUDA context"
LIBRARIES = "kernels and libraries"
PAGED = "paged optimizer states"
RESIDUAL = "residual"
COMPILED = "compiled code"
"""What takes memory outside of all operators."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What NVML and the allocator said. Bytes."""

    device_used: int
    """The most NVML saw the trial take, over the counted steps too."""
    context: int
    """What the bare context took."""
    outside: int
    """What NVML saw beyond the allocator's reserve when the counted steps were over."""


def ledger(memory: Memory, seen: Seen | None, held: Sequence[Resident]) -> Iterator[Entry]:
    """The part "memory": with ``seen`` it adds up to ``seen.device_used``, else to the tensors' bytes."""
    for name, nbytes in sorted(memory.at_peak.items(), key=lambda pair: -pair[1]):
        yield _entry("memory", name, nbytes, kind_of(name))
    if seen is None:
        return
    managed = sum(resident.nbytes for resident in held if resident.device == "managed")
    # Managed memory is on the device as far as there was room; NVML sees it beside the context.
    paged = min(managed, max(0, seen.outside - seen.context))
    outside = {
        CACHED: memory.reserved_at_peak - memory.peak,
        CONTEXT: seen.context,
        LIBRARIES: seen.outside - seen.context - paged,
        PAGED: paged,
    }
    yield from (_entry("memory", name, nbytes) for name, nbytes in outside.items() if nbytes)
    yield _entry("memory", RESIDUAL, seen.device_used - memory.peak - sum(outside.values()))


def on_host(held: Sequence[Resident]) -> Iterator[Entry]:
    """The part "host memory": what lives there from step to step."""
    names = dict.fromkeys(resident.name for resident in held if resident.device == "cpu")
    for name in names:
        nbytes = sum(
            resident.nbytes
            for resident in held
            if resident.device == "cpu" and resident.name == name
        )
        yield _entry("host memory", name, nbytes, kind_of(name))


def saved(memory: Memory) -> Iterator[Entry]:
    """The part "activations"."""
    for operator, nbytes in memory.saved.items():
        yield _entry("activations", operator.removeprefix("aten::") or COMPILED, nbytes)


def _entry(part: Part, name: str, nbytes: int, kind: str = "") -> Entry:
    return Entry(part=part, name=name, value=float(nbytes), unit="B", kind=kind)
