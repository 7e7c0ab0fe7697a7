"""How a trial is measured: its steps, its time limit, and a memory cap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Isolation = Literal["fork", "fresh"]
"""How a trial's process is made: a fork of a preloaded parent, or a new interpreter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryCap:
    """A smaller GPU, simulated on a larger one by capping PyTorch's allocator."""

    device_bytes: int
    """All that the trial may take, its CUDA context and libraries included."""
    non_allocator_bytes: int = 0
    """What context and libraries took when the configuration ran uncapped. If the trial's own
    context takes more, that counts instead. The allocator gets the rest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasureSpec:
    """How long and how carefully to measure."""

    warmup_steps: int = 2
    """Optimizer steps that never count."""
    steps: int | None = 10
    """Optimizer steps that count, at most; None: one whole epoch, as the Hugging Face guides do."""
    relative_error: float = 0.0
    """Stop early once the mean step is known to within this share (95 % confidence), or if it would
    not be known even after all steps. 0: never stop early."""
    timeout_seconds: float = 300.0
    """Not part of the trial's identity."""
    seed: int = 42
    """The seed of weights, data, the order of the data, and dropout."""
    inspect: bool = True
    """Read the effective configuration back from the live objects."""
    isolation: Isolation = "fork"
    profile: bool = False
    """Break memory and time down after the counted steps (``jobs.anatomy``)."""
    memory_cap: MemoryCap | None = None
    """None: the trial may use the whole GPU."""
    evaluate_and_save: bool = False
    """Measure the memory of an evaluation and of a checkpoint after everything else."""
