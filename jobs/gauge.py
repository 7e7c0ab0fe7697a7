"""The gauge: a process of a slot's that reads its GPU, so that no thread beside a trial's Python has to.

A thread that asks NVML while a step is being launched makes whatever waits for the host slower (docs/architecture.md).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jobs import nvml

POLL_SECONDS = 0.05
_HANDED = "ORCHESTRATOR_GAUGE"


@dataclass(frozen=True, slots=True)
class Reading:
    """The GPU at a time; None is what it or its driver does not tell."""

    seconds: float
    """Of the monotonic clock, which all processes share."""
    used_bytes: int
    energy_millijoules: int | None = None
    """Drawn since the driver was loaded."""
    utilization_percent: int | None = None
    sm_clock_mhz: int | None = None
    temperature_celsius: int | None = None
    is_power_capped: bool | None = None


class Gauge:
    """Asks the process that reads a GPU. One process at a time may ask: a slot's parent, or the trial it waits for."""

    def __init__(self, uuid: str, requests: int, replies: int, process: subprocess.Popen[bytes] | None = None) -> None:
        self.uuid = uuid
        self._requests, self._replies, self._process = requests, replies, process
        self._unread = b""

    def used_bytes(self) -> int:
        """Memory in use on the whole GPU, in bytes, whoever uses it."""
        return int(self._ask("used"))

    def processes(self) -> list[int]:
        """Who computes on the GPU, as far as NVML may say."""
        return [int(pid) for pid in self._ask("processes")]

    def watch(self) -> None:
        """Begin to read every ``POLL_SECONDS``."""
        self._ask("watch")

    def readings(self) -> list[Reading]:
        """What was read since ``watch``, and what there is now; ends it."""
        return [Reading(*reading) for reading in self._ask("readings")]

    @property
    def has_ended(self) -> bool:
        """Whether the process is no more; only who started it can tell."""
        return self._process is not None and self._process.poll() is not None

    def hand_over(self, environment: dict[str, str]) -> tuple[int, int]:
        """Let a process that is started with these variables and descriptors ask."""
        environment[_HANDED] = f"{self.uuid} {self._requests} {self._replies}"
        return self._requests, self._replies

    def _ask(self, what: str) -> Any:
        """Raises RuntimeError where the driver refuses or the gauge is gone."""
        token = str(time.monotonic_ns())
        with contextlib.suppress(BrokenPipeError):
            os.write(self._requests, f"{token} {what}\n".encode())
        while line := self._line():
            name, _, answer = line.partition(b" ")
            if name.decode(errors="replace") != token:
                continue  # to one who was killed before it had read this
            if (found := json.loads(answer)).get("error"):
                raise RuntimeError(f"NVML: {found['error']}")
            return found["answer"]
        raise RuntimeError(f"the process that reads {self.uuid} is gone")

    def _line(self) -> bytes:
        """The next one; empty at the end."""
        while b"\n" not in self._unread:
            if not (more := os.read(self._replies, 1 << 16)):
                return b""
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return line + b"\n"


_gauge: Gauge | None = None


def ensure() -> Gauge | None:
    """This process's gauge, started where there is none or it ended; None without a GPU."""
    global _gauge
    if (_gauge is None or _gauge.has_ended) and (uuids := nvml.visible_uuids()):
        _gauge = _started(uuids[0])
    return _gauge


def current() -> Gauge | None:
    """The gauge that this process was forked or started with, else its own; None without a GPU."""
    global _gauge
    if _gauge is None and (handed := os.environ.get(_HANDED)):
        uuid, requests, replies = handed.split()
        _gauge = Gauge(uuid, int(requests), int(replies))
    return _gauge or ensure()


def _started(uuid: str) -> Gauge:
    process = subprocess.Popen(
        [sys.executable, "-m", "jobs.gauge", uuid], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert process.stdin is not None
    assert process.stdout is not None
    return Gauge(uuid, process.stdin.fileno(), process.stdout.fileno(), process)


def _serve(pynvml: Any, handle: Any) -> None:
    """Answer until all who may ask are gone."""
    answers: dict[str, Callable[[], Any]] = {
        "used": lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).used),
        "processes": lambda: _processes(pynvml, handle),
    }
    readings: list[tuple[Any, ...]] = []
    is_watching = False
    with os.fdopen(0, "rb", buffering=0) as requests, os.fdopen(1, "wb") as replies:
        while True:
            if not select.select([requests], [], [], POLL_SECONDS if is_watching else None)[0]:
                with contextlib.suppress(pynvml.NVMLError):
                    readings.append(_reading(pynvml, handle))
                continue
            if not (line := requests.readline()):
                return
            token, what = line.decode().split()
            found: dict[str, Any] = {"answer": None}
            try:
                if what == "watch":
                    is_watching, readings = True, []
                elif what == "readings":
                    is_watching, found["answer"] = False, [*readings, _reading(pynvml, handle)]
                else:
                    found["answer"] = answers[what]()
            except pynvml.NVMLError as error:
                found["error"] = str(error)
            replies.write(f"{token} {json.dumps(found)}\n".encode())
            replies.flush()


def _processes(pynvml: Any, handle: Any) -> list[int]:
    try:
        return [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    except pynvml.NVMLError:
        return []


def _reading(nv: Any, handle: Any) -> tuple[Any, ...]:
    """The fields of a ``Reading``."""
    asked = (
        lambda: nv.nvmlDeviceGetTotalEnergyConsumption(handle),
        lambda: nv.nvmlDeviceGetUtilizationRates(handle).gpu,
        lambda: nv.nvmlDeviceGetClockInfo(handle, nv.NVML_CLOCK_SM),
        lambda: nv.nvmlDeviceGetTemperature(handle, nv.NVML_TEMPERATURE_GPU),
        lambda: bool(nv.nvmlDeviceGetCurrentClocksThrottleReasons(handle) & nv.nvmlClocksThrottleReasonSwPowerCap),
    )
    found: list[Any] = []
    for ask in asked:
        try:
            found.append(ask())
        except nv.NVMLError:  # before Volta, or hidden by a virtual machine
            found.append(None)
    return time.perf_counter(), int(nv.nvmlDeviceGetMemoryInfo(handle).used), *found


def main() -> None:
    """Entry point of ``python -m jobs.gauge UUID``: a request a line on stdin, a reply a line on stdout."""
    with nvml.session() as pynvml:
        _serve(pynvml, pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1]))


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        main()
