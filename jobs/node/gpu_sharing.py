"""Flags of a trial that did not have its GPU to itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.flags import Flag, FlagKind
from jobs.node.gpu_fitness import IDLE_BYTES
from jobs.spec import LibrarySettings

MAX_LIBRARY_BYTES = 2 * 2**30
"""More than libraries take of a GPU beside the context and PyTorch's allocator. On an H200 their
kernels take 160 MiB, and NCCL, which DeepSpeed starts, 960 MiB (docs/results)."""


def flags(row: Mapping[str, Any], settings: LibrarySettings) -> list[Flag]:
    """At most one flag: how another process used the GPU before or during the trial.

    In a container NVML may show the memory that others use, but not their processes.
    """
    processes = row.get("gpu_foreign_processes")
    if processes:
        return [Flag(FlagKind.SHARED_PROCESSES, processes)]
    before = row.get("gpu_used_before_bytes", 0)
    if before > IDLE_BYTES:
        return [Flag(FlagKind.SHARED_BEFORE, before)]
    unexplained = _unexplained_bytes(row)
    if unexplained > MAX_LIBRARY_BYTES and not _uses_paged_memory(settings):
        return [Flag(FlagKind.SHARED_DURING, unexplained)]
    return []


def _unexplained_bytes(row: Mapping[str, Any]) -> int:
    """Bytes of the GPU outside context and allocator, at least; 0 if that is not known."""
    needed = ("device_peak_bytes", "gpu_context_bytes", "peak_reserved_bytes")
    if any(name not in row for name in needed):
        return 0
    device, context, reserved = (row[name] for name in needed)
    # The peaks of device and allocator may be at different times: the difference is a lower bound.
    return int(device - context - reserved)


def _uses_paged_memory(settings: LibrarySettings) -> bool:
    """Whether bitsandbytes keeps optimizer states in managed memory, which no allocator counts."""
    return str(settings.training_arguments.get("optim", "")).startswith("paged")
