"""One step under PyTorch's profiler as plain data: allocations, operators, kernels and the loop's phases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

PHASE = "anatomy::"
"""How the profiler's ranges begin that name a phase of the loop."""
MODULE = "anatomy module::"
"""And those that name a module's class."""
COMPILED = "compiled graphs"
"""What stands for all modules that a compiler took."""

_ALLOCATING = (
    "aten::empty",
    "aten::zeros",
    "aten::ones",
    "aten::new_",
    "aten::resize",
    "aten::clone",
    "aten::full",
)
_COPY = "aten::_to_copy"
_ENGINE = "autograd::engine::"
_OWN = (PHASE, MODULE, _ENGINE)
_GRAPHS = ("Torch-Compiled Region", "CompiledFunction")
_GRAPH_NODE = "CompiledFunctionBackward"


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Memory taken (``nbytes`` above zero) or given back."""

    at: int
    """Nanoseconds on the profiler's clock, as all times here."""
    address: int
    nbytes: int
    reserved: int
    """Bytes that the allocator held of the device then; 0 on the host."""
    operator: str
    copies: int
    """Address of the tensor of which this is made a copy in another dtype; 0 elsewhere."""
    recomputed: bool
    """Taken by an operator that builds a graph within a backward pass."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Time that a kernel took on the device or, without one, an operator on the host less those within it."""

    begin: int
    end: int
    seconds: float
    kernel: str
    operator: str
    launched: int
    module: str = ""
    """Class of the module that called the operator, or whose backward pass did."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """An operator and the shapes of the tensors it was given; None stands for what is no tensor."""

    operator: str
    shapes: tuple[tuple[int, ...] | None, ...]
    recomputed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """Everything in order of time."""

    changes: Sequence[Change] = ()
    work: Sequence[Work] = ()
    calls: Sequence[Call] = ()
    phases: Sequence[tuple[str, int, int]] = field(default=())
    """Name, beginning and end."""
    times: float = 1.0
    """How often a step does what was traced of its passes: above 1 where it has more micro-batches."""

    def weight(self, phase: str) -> float:
        """How often a step does what was traced in a phase of this name."""
        return weight(phase, self.times)


def weight(phase: str, times: float) -> float:
    """``times`` for the passes over a micro-batch, else once."""
    return times if phase in ("forward", "backward") else 1.0


def read(
    profile: torch.profiler.profile, device: str, counted: frozenset[str], times: float = 1.0
) -> Trace:
    """A finished profile's trace; ``device`` is "cuda" or "cpu", ``counted`` the operators whose shapes matter.

    The profiler must have recorded shapes and memory, of kernels too where there is a GPU.
    """
    kineto: Any = profile.profiler
    results = kineto.kineto_results
    reader = _Reader(device, counted)
    for root in results.experimental_event_tree():
        reader.walk(root)
    work = list(_kernels(results.events(), reader.operators)) if device == "cuda" else reader.work
    return Trace(
        changes=sorted(reader.changes, key=lambda change: change.at),
        work=sorted(work, key=lambda one: one.begin),
        calls=reader.calls,
        phases=sorted(reader.phases, key=lambda phase: phase[1]),
        times=times,
    )


class _Context(NamedTuple):
    """What is known of an event from those that it lies within."""

    operator: str = ""
    """The nearest that computes."""
    copies: int = 0
    module: str = ""
    backward: bool = False
    recomputed: bool = False
    counted: bool = False


_OUTSIDE = _Context()


class _Reader:
    """Walks the profiler's tree of events, without recursion: graphs are deep."""

    def __init__(self, device: str, counted: frozenset[str]) -> None:
        self._device, self._counted = device, counted
        self._made_in: dict[int, str] = {}
        self.changes: list[Change] = []
        self.work: list[Work] = []
        self.calls: list[Call] = []
        self.phases: list[tuple[str, int, int]] = []
        self.operators: dict[int, tuple[str, int, str]] = {}

    def walk(self, root: Any) -> None:
        stack = [(root, _OUTSIDE)]
        while stack:
            event, context = stack.pop()
            kind = event.tag.name
            if kind == "Allocation":
                self._change(event, context)
                continue
            if kind == "TorchOp":
                context = self._within(event, context)
            stack += [(child, context) for child in reversed(event.children)]

    def _within(self, event: Any, outer: _Context) -> _Context:
        """The context of what lies within an operator or a range."""
        name, begin, context = event.name, event.start_time_ns, outer
        if name.startswith(PHASE):
            self.phases.append((name.removeprefix(PHASE), begin, event.end_time_ns))
        elif name.startswith(MODULE):
            context = outer._replace(module=name.removeprefix(MODULE))
        elif name.startswith(_ENGINE):
            module = (
                COMPILED
                if _GRAPH_NODE in name
                else self._made_in.get(event.extra_fields.sequence_number, "")
            )
            context = outer._replace(module=module, backward=True, recomputed=False)
        elif name.startswith(_GRAPHS):
            context = outer._replace(module=COMPILED)
        elif "::" in name or name.endswith("Backward0"):
            context = self._computing(name, event.extra_fields, outer)
        self.operators[event.correlation_id] = (
            "" if name.startswith(_OWN) else name,
            begin,
            context.module,
        )
        if self._device == "cpu":
            self._host_work(event, context)
        return context

    def _computing(self, name: str, fields: Any, outer: _Context) -> _Context:
        number = fields.sequence_number
        if number >= 0 and not outer.backward:
            # The node that gets a number is made by the last operator that was about to.
            self._made_in[number] = outer.module
        context = _Context(
            operator=outer.operator if outer.operator and name.startswith(_ALLOCATING) else name,
            copies=_source(fields) if name == _COPY else outer.copies,
            module=outer.module,
            backward=outer.backward,
            recomputed=outer.recomputed
            or (outer.backward and number >= 0 and name.startswith("aten::")),
            counted=outer.counted or name in self._counted,
        )
        if context.counted and not outer.counted:
            self.calls.append(
                Call(operator=name, shapes=_shapes(fields), recomputed=context.recomputed)
            )
        return context

    def _change(self, event: Any, context: _Context) -> None:
        fields = event.extra_fields
        if fields.device.type != self._device:
            return
        self.changes.append(
            Change(
                at=event.start_time_ns,
                address=fields.ptr,
                nbytes=fields.alloc_size,
                reserved=fields.total_reserved,
                operator=context.operator,
                copies=context.copies,
                recomputed=context.recomputed,
            )
        )

    def _host_work(self, event: Any, context: _Context) -> None:
        inner = sum(
            child.duration_time_ns for child in event.children if child.tag.name == "TorchOp"
        )
        own = event.duration_time_ns - inner
        if context.operator and own > 0 and not event.name.startswith(_OWN):
            begin = event.start_time_ns
            self.work.append(
                Work(
                    begin=begin,
                    end=begin + own,
                    seconds=own / 1e9,
                    kernel="",
                    operator=context.operator,
                    launched=begin,
                    module=context.module,
                )
            )


def _source(fields: Any) -> int:
    return next(
        (
            int(one.storage_data_ptr or 0)
            for one in fields.inputs
            if hasattr(one, "storage_data_ptr")
        ),
        0,
    )


def _shapes(fields: Any) -> tuple[tuple[int, ...] | None, ...]:
    return tuple(tuple(one.sizes) if hasattr(one, "sizes") else None for one in fields.inputs)


def _kernels(
    events: Sequence[Any], operators: Mapping[int, tuple[str, int, str]]
) -> Iterator[Work]:
    """What ran on the device, with the operator that launched it and when it did."""
    on_device: list[Any] = []
    launches: dict[int, int] = {}
    for event in events:
        if event.device_type().name == "CUDA":
            on_device.append(event)
        elif event.name().startswith("cu"):  # CUDA's runtime or driver
            launches[event.correlation_id()] = event.start_ns()
    for event in on_device:
        if getattr(event, "is_user_annotation", bool)() or event.name().startswith(
            (PHASE, MODULE, "Optimizer.")
        ):
            continue
        number: int = event.correlation_id()
        start: int = event.start_ns()
        operator, began, module = operators.get(event.linked_correlation_id(), ("", start, ""))
        yield Work(
            begin=start,
            end=start + event.duration_ns(),
            seconds=event.duration_ns() / 1e9,
            kernel=event.name(),
            operator=operator,
            launched=launches.get(number, began),
            module=module,
        )
