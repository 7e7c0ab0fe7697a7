"""A SIMULATED ``pynvml`` with as much as the program asks of it."""

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest


class FakeNvml:
    """In place of the module; a test sets what is in use, and by which processes."""

    class NVMLError(Exception):
        """What every other question raises."""

    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 0x80
    nvmlClocksThrottleReasonHwThermalSlowdown = 0x40
    nvmlClocksThrottleReasonSwThermalSlowdown = 0x20

    NVML_P2P_CAPS_INDEX_NVLINK, NVML_P2P_STATUS_OK = 2, 0
    NVML_TOPOLOGY_INTERNAL, NVML_TOPOLOGY_SINGLE, NVML_TOPOLOGY_MULTIPLE = 0, 10, 20
    NVML_TOPOLOGY_HOSTBRIDGE, NVML_TOPOLOGY_NODE, NVML_TOPOLOGY_SYSTEM = 30, 40, 50

    def __init__(self, monkeypatch: pytest.MonkeyPatch, uuids: list[str]) -> None:
        self.uuids = uuids
        self.used = 0
        self.total = 0
        self.name = "Fake H100"
        self.throttled = 0
        """The bits of the reasons."""
        self.shutdowns = 0
        self.processes: list[int] = []
        self.failing: dict[str, str] = {}
        """Function -> the error that it raises."""
        self.levels: dict[str, int] = {}
        """Two UUIDs in a row -> the level of their ancestor; those of other pairs have NVLink."""
        self.awaited: int | None = None
        self.listed = threading.Event()
        """Set when the processes are listed, ``awaited`` among them if it is given."""
        monkeypatch.setitem(sys.modules, "pynvml", self)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def nvmlInit(self) -> None:
        self._fail_if_asked("nvmlInit")

    def nvmlShutdown(self) -> None:
        self.shutdowns += 1

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 13020

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlDeviceGetName(self, handle: str) -> str:
        return self.name

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        self._fail_if_asked("nvmlDeviceGetCurrentClocksThrottleReasons")
        return self.throttled

    def nvmlDeviceGetCount(self) -> int:
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return self.uuids[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return uuid

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetP2PStatus(self, one: str, other: str, index: int) -> int:
        self._fail_if_asked("nvmlDeviceGetP2PStatus")
        return int(f"{one}{other}" in self.levels)

    def nvmlDeviceGetTopologyCommonAncestor(self, one: str, other: str) -> int:
        return self.levels[f"{one}{other}"]

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        self._fail_if_asked("nvmlDeviceGetMemoryInfo")
        return SimpleNamespace(used=self.used, total=self.total)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        processes = self.processes
        if self.awaited is None or self.awaited in processes:
            self.listed.set()
        return [SimpleNamespace(pid=pid) for pid in processes]

    def _fail_if_asked(self, function: str) -> None:
        if function in self.failing:
            raise self.NVMLError(self.failing[function])

    def __getattr__(self, name: str) -> Any:
        raise self.NVMLError(name)
