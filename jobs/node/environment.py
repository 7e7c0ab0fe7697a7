"""This machine and its package versions: measurements are comparable only where these agree."""

import contextlib
import functools
import importlib.metadata
import os
import platform
import socket
from typing import Any

from jobs.node import nvml

_PACKAGES = """
    torch transformers accelerate datasets peft deepspeed bitsandbytes torchao triton
    apollo-torch cut-cross-entropy flash-attn galore-torch grokadamw kernels liger-kernel lomo-optim
    schedulefree torch-optimi trl xformers
"""
PACKAGES = tuple(_PACKAGES.split())
"""Packages whose versions matter to a measurement. Those of techniques have their names on PyPI."""

SIMULATED_GPU_VARIABLE = "ORCHESTRATOR_GPU_GIB"
"""Environment variable of a node: memory in GiB of a smaller GPU that its GPUs simulate."""


@functools.cache
def describe() -> dict[str, Any]:
    """GPU, driver, CUDA and package versions; without a GPU, the CPU and its cores. Rows with
    different descriptions are never ranked together."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    uuids = nvml.visible_uuids()
    if not uuids:
        cpu_model = kernel_value("/proc/cpuinfo", "model name\t:") or platform.processor()
        cpu = {"gpu_model": "", "cpu_model": cpu_model, "cpu_cores": os.cpu_count()}
        return {**cpu, **versions}
    with nvml.session() as pynvml:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuids[0])
        memory_bytes = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
        name = str(pynvml.nvmlDeviceGetName(handle))
        driver = str(pynvml.nvmlSystemGetDriverVersion())
    gpu = {
        "gpu_model": _gpu_model(name, uuids[0], memory_bytes),
        "gpu_memory_bytes": min(memory_bytes, simulated_gpu_bytes() or memory_bytes),
        "driver": driver,
    }
    return {**gpu, **versions}


def simulated_gpu_bytes() -> int:
    """Bytes of the smaller GPU that is simulated; 0: none. Raises ValueError if it is no number."""
    return round(float(os.environ.get(SIMULATED_GPU_VARIABLE, "0")) * 2**30)


def _gpu_model(name: str, uuid: str, memory_bytes: int) -> str:
    """The model's name. A slice of a GPU and a simulated GPU are models of their own."""
    # NVML's UUIDs of slices begin like this, but only some drivers name slices.
    if uuid.startswith("MIG-") and "MIG" not in name:
        name = f"{name} MIG {memory_bytes / 2**30:.3g} GiB"
    simulated = simulated_gpu_bytes()
    return f"{name} as {simulated / 2**30:.4g} GiB" if simulated else name


def cores() -> int:
    """CPU cores that this process may run on; under taskset or Slurm these are not all cores."""
    return len(os.sched_getaffinity(0))


def of_node() -> tuple[dict[str, Any], int]:
    """``describe`` and ``cores``, which the driver asks of a node. Imports no orchestrator code."""
    return describe(), cores()


def node() -> str:
    return socket.gethostname()


def kernel_value(file: str, key: str) -> str:
    """What follows a key in a file of /proc; empty if the kernel does not say."""
    with contextlib.suppress(OSError), open(file) as lines:
        for line in lines:
            if line.startswith(key):
                return line.removeprefix(key).strip()
    return ""
