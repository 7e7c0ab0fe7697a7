"""Reads a finished PyTorch profile into a ``Trace``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jobs.anatomy.trace import COMPILED, Call, MemoryEvent, PhaseSpan, Trace, Work

if TYPE_CHECKING:
    import torch

PHASE = "anatomy::"  # prefix of the profiler ranges that name a phase of the loop
MODULE = "anatomy module::"  # prefix of the profiler ranges that name a module's class

_ALLOCATES = re.compile(r"aten::(empty|zeros|ones|new_|resize|clone|full)")
"""Operators that only allocate: memory is credited to the operator that called them."""
_COPY = "aten::_to_copy"
_AUTOGRAD_NODE = "autograd::engine::"
"""Prefix of the ranges in which autograd evaluates one node of the backward graph."""
_COMPILED_RANGES = ("Torch-Compiled Region", "CompiledFunction")
_COMPILED_NODE = "CompiledFunctionBackward"
_NOT_OPERATORS = (PHASE, MODULE, _AUTOGRAD_NODE)


def read(
    profile: torch.profiler.profile,
    device: str,
    counted_operators: frozenset[str],
    repetitions: float = 1.0,
) -> Trace:
    """The trace of a finished profile of "cuda" or "cpu", with shapes of ``counted_operators``."""
    # The internal tree of the host's events: the public list does not say which is inside which.
    kineto: Any = profile.profiler
    results = kineto.kineto_results
    reader = _EventTreeReader(device, counted_operators)
    for root in results.experimental_event_tree():
        reader.walk(root)
    work = reader.work
    if device == "cuda":
        work = list(_kernels(results.events(), reader.launchers))
    return Trace(
        memory_events=sorted(reader.memory_events, key=lambda event: event.time),
        work=sorted(work, key=lambda item: item.begin),
        calls=reader.calls,
        phases=sorted(reader.phases, key=lambda phase: phase.begin),
        repetitions=repetitions,
    )


class _Context(NamedTuple):
    """What an event inherits from the events around it."""

    operator: str = ""  # the innermost operator that computes something
    copy_of: int = 0  # address of the tensor that the surrounding ``_to_copy`` copies
    module: str = ""
    in_backward: bool = False
    recomputed: bool = False
    counted: bool = False  # whether the event is inside a call of one of the ``counted_operators``


class _Launcher(NamedTuple):
    operator: str
    begin: int
    module: str


class _EventTreeReader:
    """Walks the profiler's tree of host events. Iterative, because compiled graphs nest deeply."""

    def __init__(self, device: str, counted_operators: frozenset[str]) -> None:
        self._device = device
        self._counted_operators = counted_operators
        self._module_of_node: dict[int, str] = {}  # by autograd's sequence number
        self.memory_events: list[MemoryEvent] = []
        self.work: list[Work] = []  # operators of the host; filled on a CPU only
        self.calls: list[Call] = []
        self.phases: list[PhaseSpan] = []
        self.launchers: dict[int, _Launcher] = {}  # by correlation id

    def walk(self, root: Any) -> None:
        """Read an event and everything inside it, in order of time."""
        stack = [(root, _Context())]
        while stack:
            event, context = stack.pop()
            kind = event.tag.name
            if kind == "Allocation":
                self._read_allocation(event, context)
                continue
            if kind == "TorchOp":
                context = self._enter(event, context)
            # Reversed, so that the first child is popped first: autograd nodes have an order.
            stack += [(child, context) for child in reversed(event.children)]

    def _enter(self, event: Any, outer: _Context) -> _Context:
        """Read an operator or a range; returns the context of the events inside it."""
        name: str = event.name
        begin = event.start_time_ns
        if name.startswith(PHASE):
            self.phases.append(PhaseSpan(name.removeprefix(PHASE), begin, event.end_time_ns))
        context = self._context_inside(name, event.extra_fields, outer)
        operator = "" if name.startswith(_NOT_OPERATORS) else name
        self.launchers[event.correlation_id] = _Launcher(operator, begin, context.module)
        if self._device == "cpu":
            self._read_host_work(event, context)
        return context

    def _context_inside(self, name: str, fields: Any, outer: _Context) -> _Context:
        if name.startswith(PHASE):
            return outer
        if name.startswith(MODULE):
            return outer._replace(module=name.removeprefix(MODULE))
        if name.startswith(_AUTOGRAD_NODE):
            made_by = self._module_of_node.get(fields.sequence_number, "")
            module = COMPILED if _COMPILED_NODE in name else made_by
            return outer._replace(module=module, in_backward=True, recomputed=False)
        if name.startswith(_COMPILED_RANGES):
            return outer._replace(module=COMPILED)
        if "::" in name or name.endswith("Backward0"):
            return self._enter_operator(name, fields, outer)
        return outer

    def _enter_operator(self, name: str, fields: Any, outer: _Context) -> _Context:
        recomputes = self._note_node(name, fields.sequence_number, outer)
        context = outer._replace(
            recomputed=outer.recomputed or recomputes,
            counted=outer.counted or name in self._counted_operators,
        )
        only_allocates = bool(outer.operator) and _ALLOCATES.match(name) is not None
        if not only_allocates:
            context = context._replace(operator=name)
        if name == _COPY:
            tensors = (item for item in fields.inputs if hasattr(item, "storage_data_ptr"))
            address = next((tensor.storage_data_ptr for tensor in tensors), 0)
            context = context._replace(copy_of=int(address or 0))
        if context.counted and not outer.counted:
            sizes = (getattr(argument, "sizes", None) for argument in fields.inputs)
            shapes = tuple(None if size is None else tuple(size) for size in sizes)
            self.calls.append(Call(operator=name, shapes=shapes, recomputed=context.recomputed))
        return context

    def _note_node(self, name: str, sequence_number: int, outer: _Context) -> bool:
        """Note the module of the node that an operator makes; whether the operator recomputes."""
        if sequence_number < 0:
            return False
        if not outer.in_backward:
            # Of several operators with the number of the next node the last one makes it.
            self._module_of_node[sequence_number] = outer.module
            return False
        # Such an operator records a graph. In a backward pass only recomputation does.
        return name.startswith("aten::")

    def _read_allocation(self, event: Any, context: _Context) -> None:
        fields = event.extra_fields
        if fields.device.type != self._device:
            return
        self.memory_events.append(
            MemoryEvent(
                time=event.start_time_ns,
                address=fields.ptr,
                nbytes=fields.alloc_size,
                reserved=fields.total_reserved,
                operator=context.operator,
                copy_of=context.copy_of,
                recomputed=context.recomputed,
            )
        )

    def _read_host_work(self, event: Any, context: _Context) -> None:
        """An operator's own time on the CPU: its duration less that of the operators inside it."""
        children = [child for child in event.children if child.tag.name == "TorchOp"]
        own_nanoseconds = event.duration_time_ns - sum(child.duration_time_ns for child in children)
        is_operator = context.operator and not event.name.startswith(_NOT_OPERATORS)
        if not is_operator or own_nanoseconds <= 0:
            return
        begin = event.start_time_ns
        self.work.append(
            Work(
                begin=begin,
                end=begin + own_nanoseconds,
                seconds=own_nanoseconds / 1e9,
                kernel="",
                operator=context.operator,
                launched=begin,
                module=context.module,
            )
        )


def _kernels(events: Sequence[Any], launchers: Mapping[int, _Launcher]) -> Iterator[Work]:
    on_device: list[Any] = []
    launch_times: dict[int, int] = {}
    for event in events:
        if event.device_type().name == "CUDA":
            on_device.append(event)
        elif event.name().startswith("cu"):  # a call of CUDA's runtime or driver API
            launch_times[event.correlation_id()] = event.start_ns()
    for event in on_device:
        # Some events only mirror a range of the host.
        if event.is_user_annotation() or event.name().startswith((PHASE, MODULE, "Optimizer.")):
            continue
        start: int = event.start_ns()
        launcher = launchers.get(event.linked_correlation_id(), _Launcher("", start, ""))
        yield Work(
            begin=start,
            end=start + event.duration_ns(),
            seconds=event.duration_ns() / 1e9,
            kernel=event.name(),
            operator=launcher.operator,
            # The API call that launched it, else the operator around that call.
            launched=launch_times.get(event.correlation_id(), launcher.begin),
            module=launcher.module,
        )
