"""The kernels of a traced step: what each computes and moves, before any GPU is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

OPTIMIZER = "optimizer"
"""Kind of PyTorch's operations of an update."""
LIBRARY_OPTIMIZER = "library-optimizer"
"""Kind of the operations of other libraries in an update, one for each tensor. Their Python code
takes a host ten times longer, and the GPU waits for it: the loss is read before each update."""
UPDATES = (OPTIMIZER, LIBRARY_OPTIMIZER)
COLLECTIVES = ("all-gather", "reduce-scatter", "all-reduce")
"""Kinds of what GPUs exchange. Its bytes are those of the whole tensor, with all ranks' parts."""
Access = tuple[int, int]
"""Number of a storage in its trace, and the bytes of it that are read or written."""


class Operation(NamedTuple):
    """One kernel."""

    kind: str
    """As ``bf16 products``, ``bf16 cudnn attention``, ``elementwise``: ``tracing.operators``."""
    phase: str = ""
    """forward, backward or update."""
    flop: int = 0
    """Floating-point operations of products and of attention."""
    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()
    is_recomputed: bool = False
    """Whether checkpointing repeats it in the backward pass."""
    sizes: tuple[int, ...] = (0, 0, 0, 0)
    """Of products: how many there are, their rows, columns and depth. Of attention: scores, those
    that dropout draws a number for, and those that a mask changes."""

    @property
    def is_product(self) -> bool:
        return self.kind.endswith(" products")

    @property
    def is_attention(self) -> bool:
        return "attention" in self.kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """The kernels of a step, or of a part of it."""

    by_kind: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Kind -> a row for each kernel: floating-point operations, bytes, how often it runs, and the
    four ``sizes`` of an operation."""
    model_flop: float = 0.0
    """Floating-point operations without repeated ones, as the MFU counts them."""

    @classmethod
    def of(cls, operations: Sequence[Operation]) -> Work:
        rows: dict[str, list[tuple[int, ...]]] = {}
        for own in operations:
            nbytes = sum(size for _, size in (*own.reads, *own.writes))
            rows.setdefault(own.kind, []).append((own.flop, nbytes, 1, *own.sizes))
        return cls(
            by_kind={kind: np.array(own, dtype=float) for kind, own in rows.items()},
            model_flop=float(sum(own.flop for own in operations if not own.is_recomputed)),
        )

    def launches(self, *updates: str) -> float:
        """Kernels of these kinds of an update; without any, all others."""
        return float(
            sum(
                rows[:, 2].sum()
                for kind, rows in self.by_kind.items()
                if (kind in updates if updates else kind not in UPDATES)
            )
        )

    def __mul__(self, times: float) -> Work:
        """The same, run so many times."""
        scale = np.array([1, 1, times, 1, 1, 1, 1])
        by_kind = {kind: rows * scale for kind, rows in self.by_kind.items()}
        return Work(by_kind=by_kind, model_flop=self.model_flop * times)

    def __add__(self, other: Work) -> Work:
        both = {
            kind: np.concatenate(
                [own.by_kind[kind] for own in (self, other) if kind in own.by_kind]
            )
            for kind in {**self.by_kind, **other.by_kind}
        }
        return Work(by_kind=both, model_flop=self.model_flop + other.model_flop)

    def deepened(self, less: Work, times: float) -> Work:
        """The work of a model with ``times`` as many layers more as ``less`` has fewer."""
        return self * (1 + times) + less * -times

    def has_kernels_of(self, other: Work) -> bool:
        """Whether both have as many kernels of each kind."""
        numbers = ({kind: len(rows) for kind, rows in own.by_kind.items()} for own in (self, other))
        return next(numbers) == next(numbers)

    def seeing(self, share: float) -> Work:
        """The same positions in rows of this share of the length: each has as many fewer scores of
        attention."""
        scale = np.array([share, 1, 1, share, share, share, 1])
        attention = {kind: own for kind, own in self.by_kind.items() if "attention" in kind}
        away = (1 - share) * sum(float(own[:, 0] @ own[:, 2]) for own in attention.values())
        seeing = {kind: own * scale for kind, own in attention.items()}
        return Work(by_kind={**self.by_kind, **seeing}, model_flop=self.model_flop - away)

    def towards(self, high: Work, position: float) -> Work:
        """The work at a micro-batch, all of whose sizes are affine in it; 1 is that of ``high``."""
        return Work(
            by_kind={
                kind: rows + (high.by_kind[kind] - rows) * position
                for kind, rows in self.by_kind.items()
            },
            model_flop=self.model_flop + (high.model_flop - self.model_flop) * position,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharing:
    """What a rank does in a step because several train together."""

    ranks: int
    exchanged: Work
    """The collective operations."""
    overlaps: bool
    """Whether they run beside other kernels."""
    hooks: Mapping[str, float] = field(default_factory=dict)
    """Engine -> how often its code on the host runs: once for each collective of FSDP2, and for
    each parameter in each micro-batch of DeepSpeed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepWork:
    """The kernels of an optimizer step, and what it trains on."""

    eager: Work
    compiled: Work
    """The same step if it is compiled."""
    is_compiled: bool = False
    samples: float
    """Whole rows of data; a block of packed ones has several in the mean."""
    tokens: int
    """With padding; 0 for images."""
    formats: Mapping[str, str] = field(default_factory=dict)
    """Number format of a trace -> the one that computes: ``fp32`` -> ``tf32`` where it may."""
    sharing: Sharing | None = None
    """None on one GPU."""
    new_shapes: float = 0.0
    """Micro-batches of a shape that none before had, whose kernels are prepared."""

    @property
    def work(self) -> Work:
        return self.compiled if self.is_compiled else self.eager
