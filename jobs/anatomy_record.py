"""The anatomy of a trial as plain data: kinds of memory, named figures, memory over one step."""

from collections.abc import Mapping
from dataclasses import dataclass, field

PARTS: Mapping[str, str] = {
    "memory": "Device memory at the peak of a step; adds up to the peak that NVML saw (on a CPU, "
    "to the bytes of the tensors)",
    "activations": "What the forward pass saved for the backward pass, by operator",
    "host memory": "What the model and its optimizer keep in host memory",
    "operations": "Device time of a step by kind of operation, idle time included (on a CPU, the "
    "processor's time)",
    "kernels": "The operators and kernels that took the most device time",
    "modules": "Device time of the forward and backward passes by class of module; blocks of "
    "torch.nn other than normalizations count with the module around them, compiled code as one",
    "step": "The counted step's time by what it was spent on; adds up to the step",
    "phases": "A step's time by what the loop was doing, idle time included",
    "efficiency": "Floating-point operations of a step, their rate, and the share of the device's "
    "peak rate (MFU)",
}
"""Part of an anatomy -> what it breaks down."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One figure of an anatomy."""

    part: str  # a key of ``PARTS``
    name: str
    value: float
    unit: str
    kind: str = ""  # the kind in ``jobs.anatomy_record`` that predictions count it under
    rule: str = ""  # the formula or source


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """Memory over one step. Each sample is the highest moment of its stretch of time."""

    seconds: list[float] = field(default_factory=list)
    """When each stretch begins, from the beginning of the step."""
    held: Mapping[str, list[int]] = field(default_factory=dict)
    """Kind of memory -> the bytes that it held at each sample."""
    phases: list[tuple[str, float]] = field(default_factory=list)
    """What the loop did, and from when on (seconds)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Anatomy:
    """Where the memory and the time of a trial went."""

    entries: tuple[Entry, ...] = ()
    timeline: Timeline = field(default_factory=Timeline)

    def values(self, part: str) -> dict[str, float]:
        """Name -> value of a part's entries, in order."""
        return {entry.name: entry.value for entry in self.entries if entry.part == part}


KINDS: Mapping[str, str] = {
    "weights": "Parameters and buffers",
    "gradients": "One for each trained parameter",
    "optimizer states": "What the optimizer keeps for each parameter",
    "saved activations": "Kept by the forward pass for the backward pass",
    "recomputed activations": "Computed again in the backward pass under checkpointing",
    "autocast copies of weights": "16-bit copies of 32-bit parameters",
    "inputs": "The batch",
    "logits": "The scores of all classes or tokens, and what the loss makes of them",
    "temporary buffers": "Intermediate results of operators",
    "kernel workspaces": "Scratch memory of single kernels while they run",
    "library workspaces": "Scratch memory that cuBLAS keeps once it has allocated it",
    "ZeRO buffers": "DeepSpeed's flat partitions and buckets",
    "gathered parameters": "Whole parameters whose parts several GPUs keep",
    "communication buffers": "Gradients on their way between GPUs",
}
"""Kind of memory -> meaning. A measurement counts kernel workspaces as temporary buffers, and
logits as these or as saved activations."""

OTHER = "other"
"""Memory that was allocated before the profiled step, for a purpose that is not known."""

_PART_OF = {
    "LoRA adapters": "weights",
    "reference model": "weights",
    "32-bit master weights": "optimizer states",
}
"""Name with an entry of its own in the anatomy -> the kind of memory that it belongs to."""


def kind_of(name: str) -> str:
    """The kind of memory that a name belongs to."""
    return _PART_OF.get(name, name)
