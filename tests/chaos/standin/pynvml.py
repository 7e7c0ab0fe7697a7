"""A SIMULATED GPU per node, in the place of NVML. Its state is in the control folder."""

import os
from types import SimpleNamespace
from typing import Any

from tests.chaos.control import Control

NVML_CLOCK_SM = NVML_TEMPERATURE_GPU = 0
_GIB = 2**30
_NODE = os.environ["CHAOS_NODE"]
_PROCESSES = {"foreign": 1, "busy": 2}
"""State -> processes on the GPU."""


class NVMLError(Exception):
    """As NVML says it."""


def _state(*_: Any) -> str:
    """The state of this node's GPU, which is also its handle's only use."""
    state = str(Control().read(f"gpus/{_NODE}") or "")
    if state == "lost":
        raise NVMLError("GPU is lost")
    return state


def _silent(*_: Any) -> Any:
    raise NVMLError("Not Supported")


def nvmlInit() -> None:
    if not _NODE:
        raise NVMLError("Driver Not Loaded")


def nvmlDeviceGetMemoryInfo(handle: str) -> Any:
    is_used = _state() in _PROCESSES
    if is_used:
        Control().looked()
    return SimpleNamespace(total=80 * _GIB, used=20 * _GIB if is_used else 0)


def nvmlDeviceGetComputeRunningProcesses(handle: str) -> list[Any]:
    return [SimpleNamespace(pid=1, usedGpuMemory=20 * _GIB)] * _PROCESSES.get(_state(), 0)


nvmlShutdown = _PROCESSES.copy
nvmlDeviceGetHandleByIndex = nvmlDeviceGetHandleByUUID = _state
nvmlDeviceGetCount = lambda: 1  # noqa: E731
nvmlDeviceGetIndex = lambda handle: 0  # noqa: E731
nvmlDeviceGetUUID = lambda handle: f"GPU-simulated-{_NODE}"  # noqa: E731
nvmlDeviceGetName = lambda handle: "SIMULATED"  # noqa: E731
nvmlSystemGetDriverVersion = lambda: "simulated"  # noqa: E731
nvmlDeviceGetTotalEnergyConsumption = _silent
nvmlDeviceGetClockInfo = nvmlDeviceGetTemperature = nvmlDeviceGetCudaComputeCapability = _silent
nvmlDeviceGetCurrentClocksThrottleReasons = _silent
