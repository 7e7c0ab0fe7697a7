"""Whether a GPU is fit to measure on: it answers, it computes, and no other process uses it.

How fast a GPU is for its model says ``jobs.node.checks.rates``.
"""

import contextlib
import sys
from collections.abc import Mapping
from typing import Any

from jobs import self_process
from jobs.flags import Flag, FlagKind
from jobs.node import nvml
from jobs.node.processes import probe
from jobs.spec import LibrarySettings

IDLE_BYTES = 2**30
"""An idle GPU has less memory in use, and so has a bare CUDA context. A driver keeps 0.6 GiB."""


def lost() -> str:
    """The driver's error if a visible GPU has fallen off the bus; empty if all answer."""
    import pynvml

    try:
        for uuid in nvml.visible_uuids():
            nvml.used_bytes(uuid)
    except pynvml.NVMLError as error:
        return str(error)
    return ""


def dead() -> str:
    """Why CUDA cannot compute on a visible GPU; empty if a process of its own can."""
    if not nvml.visible_uuids():
        return ""
    try:
        # A process needs less time, most of it to import torch. A dead GPU may never answer.
        probe(self_process.command("jobs.node.gpu_fitness"), timeout_seconds=60.0)
    except RuntimeError as error:
        return str(error)
    return ""


def is_in_use(processes: int, used_bytes: int, waiting: int = 0) -> bool:
    """Whether others use a GPU, by its processes, or by the memory where NVML hides them.
    ``waiting`` processes of ours may hold a bare CUDA context."""
    return processes > waiting or used_bytes > (1 + waiting) * IDLE_BYTES


def shared(waiting: int = 0) -> str:
    """How others use a visible GPU while no trial of ours runs; empty if none does."""
    for uuid in nvml.visible_uuids():
        processes = 0
        with nvml.session() as library:
            handle = library.nvmlDeviceGetHandleByUUID(uuid)
            with contextlib.suppress(library.NVMLError):  # it does not say
                processes = len(library.nvmlDeviceGetComputeRunningProcesses(handle))
            used = int(library.nvmlDeviceGetMemoryInfo(handle).used)
        if is_in_use(processes, used, waiting):
            return f"{used / 2**30:.1f} GiB are in use on it, by {processes or 'unseen'} processes"
    return ""


def sharing_flags(row: Mapping[str, Any], settings: LibrarySettings) -> list[Flag]:
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


if __name__ == "__main__":
    import torch

    # True, a wrong sum, is the exit status 1.
    numbers = range(torch.cuda.device_count())
    sys.exit(any(torch.ones(2, device=f"cuda:{number}").sum().item() != 2 for number in numbers))
