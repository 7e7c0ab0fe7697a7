"""The host's share: resident memory at its peak, pinned memory, CPU seconds."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from jobs.record import Column
from jobs.trackers.base import Held, Tracker
from jobs.trackers.sources.time_series import Readings


class Host(Tracker):
    """The trial's own process; data-loader workers count in the CPU seconds only, once they have ended."""

    columns: ClassVar = (
        Column(
            "host_peak_resident_bytes", "int64", "most resident memory of the process", unit="B"
        ),
        Column(
            "host_peak_growth_bytes",
            "int64",
            "peak resident memory beyond what the process held before the trial",
            unit="B",
        ),
        Column(
            "host_pinned_bytes",
            "int64",
            "most page-locked memory PyTorch held for tensors",
            unit="B",
        ),
        Column(
            "host_cpu_seconds",
            "float64",
            "CPU time of all threads over the counted steps",
            unit="s",
        ),
    )

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._before = 0
        self._cpu_seconds = Readings()

    def start(self, held: Held) -> None:
        self._before = resident() - held.resident_bytes
        _reset_peak()

    def step_end(self) -> None:
        self._cpu_seconds.take(_cpu_seconds())

    def counted(self, begin: float, end: float) -> None:
        self._cpu_seconds.take(_cpu_seconds())
        self._values["host_cpu_seconds"] = self._cpu_seconds.growth(begin, end)

    def measurements(self) -> Mapping[str, Any]:
        import torch

        peak = _status_bytes("VmHWM")
        values = {
            **self._values,
            "host_peak_resident_bytes": peak,
            "host_peak_growth_bytes": peak - self._before,
        }
        if torch.cuda.is_initialized() and hasattr(torch.cuda.memory, "host_memory_stats"):
            pinned = torch.cuda.memory.host_memory_stats().get("allocated_bytes.peak")
            if pinned is not None:
                values["host_pinned_bytes"] = pinned
        return values


def resident() -> int:
    """Resident memory of this process, in bytes."""
    return _status_bytes("VmRSS")


def _reset_peak() -> None:
    """Make VmHWM start again from now (proc(5): 5 in clear_refs)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return  # not Linux, or not allowed: the peak then includes what came before


def _status_bytes(field: str) -> int:
    """A memory field of /proc/self/status in bytes; the lifetime peak where there is no /proc."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
