"""The host: peak resident memory, pinned memory and CPU time of the trial's process."""

import contextlib
import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from jobs.node.environment import kernel_value
from jobs.record import Column
from jobs.trackers.sources.series import TimeSeries
from jobs.trackers.tracker import Tracker


class Host(Tracker):
    """Data-loader workers count in the CPU time only, and only once they have ended."""

    columns: ClassVar = (
        Column.nbytes("host_peak_resident_bytes", "Most resident memory of the process"),
        Column.nbytes("host_pinned_bytes", "Most page-locked host memory of PyTorch's tensors"),
        Column.seconds("host_cpu_seconds", "CPU time of all threads during the counted steps"),
    )

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._cpu_seconds = TimeSeries()

    def start(self, context_bytes: int) -> None:
        restart_peak()

    def step_end(self) -> None:
        self._cpu_seconds.append(_cpu_seconds())

    def counted(self, begin: float, end: float) -> None:
        self._cpu_seconds.append(_cpu_seconds())
        self._values["host_cpu_seconds"] = self._cpu_seconds.growth(begin, end)

    def measurements(self) -> Mapping[str, Any]:
        import torch

        values = {**self._values, "host_peak_resident_bytes": peak_resident_bytes()}
        if torch.cuda.is_initialized():
            pinned = torch.cuda.memory.host_memory_stats()
            values["host_pinned_bytes"] = pinned["allocated_bytes.peak"]
        return values


def restart_peak() -> None:
    """Let the peak of resident memory count from now (5 restarts VmHWM, proc(5)). Where that is not
    permitted, the peak includes what came before."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_resident_bytes() -> int:
    """VmHWM; without /proc, the peak since the process began. Both count KiB (proc(5))."""
    if kib := kernel_value("/proc/self/status", "VmHWM:"):
        return int(kib.split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _cpu_seconds() -> float:
    """CPU time so far of all threads, and of ended child processes such as data-loader workers."""
    return sum(os.times()[:4])
