"""The memory ledger: the tensors at the peak, and all other memory up to what NVML reported."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobs.anatomy.memory.live_tensors import LiveTensor
from jobs.anatomy.memory.timeline import StepMemory
from jobs.anatomy_record import Entry, kind_of

RESIDUAL = "residual"


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceReadings:
    """What NVML and the allocator reported about the GPU, in bytes."""

    peak: int  # the trial's peak by NVML, over the counted steps
    context: int  # size of the bare CUDA context
    outside_allocator: int  # what NVML saw beyond the allocator's reserve, after the counted steps


def ledger(
    memory: StepMemory, readings: DeviceReadings | None, live_tensors: Sequence[LiveTensor]
) -> Iterator[Entry]:
    """The part "memory" in bytes: adds up to ``readings.peak``, without them to the tensors."""
    for name, nbytes in Counter(memory.at_peak).most_common():
        yield _entry("memory", name, nbytes, kind_of(name))
    if readings is None:
        return
    managed = bytes_by_name(live_tensors, "managed").total()
    beyond_context = readings.outside_allocator - readings.context
    # CUDA keeps managed memory on the device as far as there is room, outside the allocator.
    paged = min(managed, max(0, beyond_context))
    outside = {
        "cached by the allocator": memory.reserved_at_peak - memory.peak_bytes,
        "CUDA context": readings.context,
        "kernels and libraries": beyond_context - paged,
        "paged optimizer states": paged,
    }
    for name, nbytes in outside.items():
        if nbytes:
            yield _entry("memory", name, nbytes)
    # The profiled step may need a little more or less than the step with the peak.
    residual = readings.peak - memory.peak_bytes - sum(outside.values())
    yield _entry("memory", RESIDUAL, residual)


def host_memory(live_tensors: Sequence[LiveTensor]) -> Iterator[Entry]:
    """The part "host memory": tensors that stay in host memory from step to step."""
    for name, nbytes in bytes_by_name(live_tensors, "cpu").items():
        yield _entry("host memory", name, nbytes, kind_of(name))


def bytes_by_name(live_tensors: Sequence[LiveTensor], device: str) -> Counter[str]:
    nbytes: Counter[str] = Counter()
    for tensor in live_tensors:
        if tensor.device == device:
            nbytes[tensor.name] += tensor.nbytes
    return nbytes


def saved_activations(memory: StepMemory) -> Iterator[Entry]:
    """The part "activations": what was saved at the peak, by operator."""
    for operator, nbytes in memory.saved_by_operator.items():
        # Compiled code allocates outside all operators.
        yield _entry("activations", operator.removeprefix("aten::") or "compiled code", nbytes)


def _entry(part: str, name: str, nbytes: int, kind: str = "") -> Entry:
    return Entry(part=part, name=name, value=float(nbytes), unit="B", kind=kind)
