"""Which machine and which versions this is: what makes two measurements comparable, and where one was made."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import socket
from typing import Any

from jobs.node import nvml

PACKAGES = (
    "torch",
    "transformers",
    "accelerate",
    "datasets",
    "peft",
    "deepspeed",
    "bitsandbytes",
    "torchao",
    "triton",
)

SIMULATED_GPU_VARIABLE = "ORCHESTRATOR_GPU_GIB"
"""GiB of a smaller card, to be played by the GPUs of the node whose environment has this."""
_GIB = 2**30


@functools.cache
def describe() -> dict[str, Any]:
    """GPU model and memory, driver, CUDA and package versions; without a GPU the CPU's model and cores.

    Rows whose descriptions differ are never ranked together. The driver is asked through NVML: no CUDA context.
    """
    description: dict[str, Any] = {"python": platform.python_version(), **_versions()}
    uuids = nvml.visible_uuids()
    if not uuids:
        return {
            "gpu_model": "",
            "cpu_model": _cpu_model(),
            "cpu_cores": os.cpu_count(),
            **description,
        }
    with nvml.session() as pynvml:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuids[0])
        memory_bytes = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
        return {
            "gpu_model": _gpu_model(str(pynvml.nvmlDeviceGetName(handle)), uuids[0], memory_bytes),
            "gpu_memory_bytes": min(memory_bytes, simulated_gpu_bytes() or memory_bytes),
            "driver": str(pynvml.nvmlSystemGetDriverVersion()),
            **description,
        }


def simulated_gpu_bytes() -> int:
    """Memory of the smaller card that this machine's GPUs are to play (ORCHESTRATOR_GPU_GIB); 0: they are themselves.

    Raises ValueError where the variable is no number.
    """
    return round(float(os.environ.get(SIMULATED_GPU_VARIABLE, "0")) * _GIB)


def _gpu_model(name: str, uuid: str, memory_bytes: int) -> str:
    """A slice of a GPU, or one that plays a smaller card, is another model than the whole."""
    if uuid.startswith("MIG-") and "MIG" not in name:  # what it is called depends on the driver
        name = f"{name} MIG {memory_bytes / _GIB:.3g} GiB"
    played = simulated_gpu_bytes()
    return f"{name} as {played / _GIB:.4g} GiB" if played else name


def cores() -> int:
    """CPU cores that this process may run on: under taskset or Slurm not all that the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def of_node() -> tuple[dict[str, Any], int]:
    """``describe`` and ``cores``: what a node is asked; here, that answering imports nothing of the driver's."""
    return describe(), cores()


def node() -> str:
    """This machine's name in its network."""
    return socket.gethostname()


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(
                line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
            )
    except (OSError, StopIteration):
        return platform.processor()
