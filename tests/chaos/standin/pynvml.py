"""A SIMULATED GPU per node, in the place of NVML. Its state is in the control folder."""

from __future__ import annotations

import os
from typing import Any

from tests.chaos.control import Control
from tests.support.fake_nvml import FakeNvml

_NODE = os.environ["CHAOS_NODE"]
_PROCESSES = {"foreign": 1, "busy": 2}
"""State -> processes on the GPU."""
_FAKE = FakeNvml(None, [f"GPU-simulated-{_NODE}"])
_FAKE.name, _FAKE.total = "SIMULATED", 80 * 2**30
if not _NODE:  # the driver, which has no GPU
    _FAKE.failing["nvmlInit"] = "Driver Not Loaded"
NVMLError = FakeNvml.NVMLError


def _lost(*_: Any) -> Any:
    raise NVMLError("GPU is lost")


def __getattr__(name: str) -> Any:
    """A function of NVML, of the GPU as it is now."""
    state = Control().read(f"gpus/{_NODE}") or ""
    if state == "lost" and name.startswith("nvmlDeviceGet"):
        return _lost
    processes = _PROCESSES.get(state, 0)
    _FAKE.processes = [1] * processes
    _FAKE.used = 20 * 2**30 if processes else 0
    return getattr(_FAKE, name)
