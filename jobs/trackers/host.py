"""The host: peak resident memory, pinned memory and CPU time of the trial's process."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from jobs.record import Column
from jobs.trackers.sources.time_series import TimeSeries
from jobs.trackers.tracker import ContextMemory, Tracker


class Host(Tracker):
    """Data-loader workers count in the CPU time only, and only once they have ended."""

    columns: ClassVar = (
        Column(
            "host_peak_resident_bytes", "int64", "Most resident memory of the process", unit="B"
        ),
        Column(
            "host_peak_growth_bytes",
            "int64",
            "Peak resident memory beyond what the process held before the trial",
            unit="B",
        ),
        Column(
            "host_pinned_bytes",
            "int64",
            "Most page-locked host memory that PyTorch held for tensors",
            unit="B",
        ),
        Column(
            "host_cpu_seconds",
            "float64",
            "CPU time of all threads during the counted steps",
            unit="s",
        ),
    )

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._resident_before = 0
        self._cpu_seconds = TimeSeries()

    def start(self, context: ContextMemory) -> None:
        """Note the resident memory from before the trial, and begin a new peak."""
        # A context that was created ahead belongs to the trial: it does not count as held before.
        self._resident_before = resident() - context.resident_bytes
        _reset_peak()

    def step_end(self) -> None:
        """Read the CPU time."""
        self._cpu_seconds.append(_cpu_seconds())

    def counted(self, begin: float, end: float) -> None:
        """Attribute CPU time to the counted steps."""
        self._cpu_seconds.append(_cpu_seconds())
        self._values["host_cpu_seconds"] = self._cpu_seconds.growth(begin, end)

    def measurements(self) -> Mapping[str, Any]:
        """The peaks until now, and the CPU time once the counted steps are over."""
        peak = _status_bytes("VmHWM")
        values = {
            **self._values,
            "host_peak_resident_bytes": peak,
            # A forked process begins with the libraries that its parent imported.
            "host_peak_growth_bytes": peak - self._resident_before,
        }
        pinned = _pinned_bytes()
        if pinned is not None:
            values["host_pinned_bytes"] = pinned
        return values


def resident() -> int:
    """Resident memory of this process, in bytes."""
    return _status_bytes("VmRSS")


def _reset_peak() -> None:
    """Restart VmHWM, the peak of resident memory, from now (proc(5): write 5 to clear_refs)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return  # not Linux, or not permitted: the peak then includes what came before the trial


def _status_bytes(field: str) -> int:
    """A memory field of /proc/self/status in bytes; without /proc, the lifetime peak."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024  # the kernel's "kB" are KiB (proc(5))
    except OSError:
        pass
    # Linux counts ru_maxrss in KiB (getrusage(2)).
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _pinned_bytes() -> int | None:
    """Peak of page-locked memory; None without CUDA, or if this PyTorch does not count it."""
    import torch

    if not torch.cuda.is_initialized() or not hasattr(torch.cuda.memory, "host_memory_stats"):
        return None
    peak: int | None = torch.cuda.memory.host_memory_stats().get("allocated_bytes.peak")
    return peak


def _cpu_seconds() -> float:
    """CPU time so far of all threads, and of the child processes that have ended."""
    # Ended children are data-loader workers.
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
