"""The host: peak resident memory of the trial's process."""

import contextlib
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from jobs.node.environment import kernel_value
from jobs.record import Column
from jobs.trackers.tracker import Tracker


class Host(Tracker):
    """Data-loader workers do not count."""

    columns: ClassVar = (
        Column.nbytes("host_peak_resident_bytes", "Most resident memory of the process"),
    )

    def start(self, context_bytes: int) -> None:
        restart_peak()

    def measurements(self) -> Mapping[str, Any]:
        return {"host_peak_resident_bytes": peak_resident_bytes()}


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
