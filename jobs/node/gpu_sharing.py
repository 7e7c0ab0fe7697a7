"""Whether a trial had its GPU to itself: what its row says of others there, before it and beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.node import nvml
from jobs.spec import Recipe

_SHARED = "shared"

LIBRARY_BYTES = 2 * 2**30
"""More than libraries take of a GPU beside the context and PyTorch's allocator: their kernels 160 MiB of an H200, NCCL,
which DeepSpeed starts, 960 MiB (docs/results)."""


def warnings(figures: Mapping[str, Any], recipe: Recipe) -> list[str]:
    """What a reader should know of others on the GPU before trusting a row's memory, speed or outcome, in words; empty
    where there was nobody. In a container NVML may tell the memory that others use, and not the processes."""
    if others := figures.get("gpu_foreign_processes"):
        return [f"{_SHARED}: {others} other processes were on the GPU"]
    if (before := figures.get("gpu_used_before_bytes", 0)) > nvml.IDLE_BYTES:
        return [f"{_SHARED}: {before / 2**30:.1f} GiB of the GPU were in use before the trial"]
    if (outside := _outside(figures)) > LIBRARY_BYTES and not _pages(recipe):
        return [
            f"{_SHARED}: {outside / 2**30:.1f} GiB of the GPU were neither the context's nor the allocator's"
        ]
    return []


def is_shared(warnings: Sequence[str]) -> bool:
    """Whether a row's warnings say that somebody else used the GPU."""
    return any(warning.startswith(_SHARED) for warning in warnings)


def _outside(figures: Mapping[str, Any]) -> int:
    """At least so many bytes of the GPU were at some time neither the context's nor the allocator's; 0 where it is not
    known."""
    if not {"device_used_bytes", "gpu_context_bytes", "peak_reserved_bytes"} <= figures.keys():
        return 0
    return int(
        figures["device_used_bytes"] - figures["gpu_context_bytes"] - figures["peak_reserved_bytes"]
    )


def _pages(recipe: Recipe) -> bool:
    """Whether it keeps optimizer states in memory that the driver moves, which no allocator counts: bitsandbytes'."""
    return str(recipe.training_arguments.get("optim", "")).startswith("paged")
