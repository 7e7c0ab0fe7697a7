"""This machine and its package versions: measurements are comparable only where these agree."""

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
    "apollo-torch",
    "cut-cross-entropy",
    "flash-attn",
    "galore-torch",
    "grokadamw",
    "kernels",
    "liger-kernel",
    "lomo-optim",
    "schedulefree",
    "torch-optimi",
    "trl",
    "xformers",
)
"""Packages whose versions matter to a measurement. Those of techniques have their names on PyPI."""

SIMULATED_GPU_VARIABLE = "ORCHESTRATOR_GPU_GIB"
"""Environment variable of a node: memory in GiB of a smaller GPU that its GPUs simulate."""


@functools.cache
def describe() -> dict[str, Any]:
    """GPU, driver, CUDA and package versions; without a GPU, the CPU and its cores.

    Rows with different descriptions are never ranked together. The driver is asked through NVML,
    which creates no CUDA context.
    """
    versions = {"python": platform.python_version(), **_package_versions()}
    uuids = nvml.visible_uuids()
    if uuids:
        return {**_gpu(uuids[0]), **versions}
    cpu = {"gpu_model": "", "cpu_model": _cpu_model(), "cpu_cores": os.cpu_count()}
    return {**cpu, **versions}


def _gpu(uuid: str) -> dict[str, Any]:
    """A GPU's part of the description, as the driver reports it."""
    with nvml.session() as pynvml:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        memory_bytes = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
        name = str(pynvml.nvmlDeviceGetName(handle))
        driver = str(pynvml.nvmlSystemGetDriverVersion())
    return {
        "gpu_model": _gpu_model(name, uuid, memory_bytes),
        "gpu_memory_bytes": min(memory_bytes, simulated_gpu_bytes() or memory_bytes),
        "driver": driver,
    }


def simulated_gpu_bytes() -> int:
    """Memory of the smaller GPU that this machine's GPUs simulate; 0: they simulate none.

    Raises ValueError if ``ORCHESTRATOR_GPU_GIB`` is no number.
    """
    # The variable counts GiB, all else counts bytes.
    return round(float(os.environ.get(SIMULATED_GPU_VARIABLE, "0")) * 2**30)


def _gpu_model(name: str, uuid: str, memory_bytes: int) -> str:
    """The model's name. A slice of a GPU and a simulated GPU are models of their own."""
    # NVML's UUIDs of slices begin like this.
    is_slice = uuid.startswith("MIG-")
    if is_slice and "MIG" not in name:  # only some drivers name slices
        name = f"{name} MIG {memory_bytes / 2**30:.3g} GiB"
    simulated = simulated_gpu_bytes()
    if simulated:
        return f"{name} as {simulated / 2**30:.4g} GiB"
    return name


def cores() -> int:
    """CPU cores that this process may run on; under taskset or Slurm these are not all cores."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def of_node() -> tuple[dict[str, Any], int]:
    """``describe`` and ``cores``, which the driver asks of a node. Imports no orchestrator code."""
    return describe(), cores()


def node() -> str:
    """This machine's name in its network."""
    return socket.gethostname()


def _package_versions() -> dict[str, str]:
    """Package -> version, of those installed."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()
