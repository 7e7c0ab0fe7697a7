"""A SIMULATED GPU per node, in the place of NVML. Its state stands in the control folder."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from tests.chaos.control import Control

NVML_CLOCK_SM = NVML_TEMPERATURE_GPU = 0
_GIB = 2**30
_NODE = os.environ["CHAOS_NODE"]


class NVMLError(Exception):
    """As NVML says it."""


def nvmlInit() -> None:
    if not _NODE or os.environ["CHAOS_TRIALS"] == "training":
        raise NVMLError("Driver Not Loaded")


def nvmlShutdown() -> None:
    return None


def _state() -> str:
    if (state := Control.here().gpu(_NODE)) == "lost":
        raise NVMLError("GPU is lost")
    return state


def nvmlDeviceGetCount() -> int:
    return 1


def nvmlDeviceGetHandleByIndex(index: int) -> str:
    _state()
    return _NODE


def nvmlDeviceGetHandleByUUID(uuid: str) -> str:
    _state()
    return _NODE


def nvmlDeviceGetIndex(handle: str) -> int:
    return 0


def nvmlDeviceGetUUID(handle: str) -> str:
    return f"GPU-simulated-{handle}"


def nvmlDeviceGetName(handle: str) -> str:
    return "SIMULATED"


def nvmlSystemGetDriverVersion() -> str:
    return "simulated"


_PROCESSES = {"foreign": 1, "busy": 2}
"""State -> processes on the GPU."""


def nvmlDeviceGetMemoryInfo(handle: str) -> Any:
    return SimpleNamespace(total=80 * _GIB, used=20 * _GIB if _state() in _PROCESSES else 0)


def nvmlDeviceGetComputeRunningProcesses(handle: str) -> list[Any]:
    return [SimpleNamespace(pid=1, usedGpuMemory=20 * _GIB)] * _PROCESSES.get(_state(), 0)


def _silent(handle: str, *which: int) -> Any:
    raise NVMLError("Not Supported")


nvmlDeviceGetTotalEnergyConsumption = nvmlDeviceGetUtilizationRates = _silent
nvmlDeviceGetClockInfo = nvmlDeviceGetTemperature = nvmlDeviceGetCudaComputeCapability = _silent
nvmlDeviceGetCurrentClocksThrottleReasons = _silent
