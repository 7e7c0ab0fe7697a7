"""Flags of a trial that did not have its GPU to itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.flags import Flag, FlagKind
from jobs.node.gpu_fitness import IDLE_BYTES
from jobs.spec import LibrarySettings


def flags(row: Mapping[str, Any], settings: LibrarySettings) -> list[Flag]:
    """At most one flag: how another process used the GPU before or during the trial."""
    processes = row.get("gpu_foreign_processes")
    if processes:
        return [Flag(FlagKind.SHARED_PROCESSES, processes)]
    before = row.get("gpu_used_before_bytes", 0)
    if before > IDLE_BYTES:
        return [Flag(FlagKind.SHARED_BEFORE, before)]
    needed = ("device_peak_bytes", "gpu_context_bytes", "peak_reserved_bytes")
    # bitsandbytes may keep optimizer states in managed memory, which no allocator counts.
    has_paged_memory = str(settings.training_arguments.get("optim", "")).startswith("paged")
    if has_paged_memory or any(name not in row for name in needed):
        return []
    device, context, reserved = (row[name] for name in needed)
    # The peaks of device and allocator may be at different times: the difference is a lower bound.
    unexplained = int(device - context - reserved)
    # Libraries take less beside the context and PyTorch's allocator. On an H200 their kernels take
    # 160 MiB, and NCCL, which DeepSpeed starts, 960 MiB (docs/results).
    if unexplained > 2 * 2**30:
        return [Flag(FlagKind.SHARED_DURING, unexplained)]
    return []
