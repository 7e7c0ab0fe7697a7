"""Gathers the facts about this node in ``look()``; judges nothing and imports no torch."""

import contextlib
import math
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.infrastructure import mount_of
from jobs.node import environment
from jobs.node.checks import installed
from jobs.node.nvml import slowed_by, slowest_link

VARIABLES = (
    "TORCH_CUDA_ARCH_LIST",
    "CUDA_VISIBLE_DEVICES",
    "BNB_CUDA_VERSION",
    "DS_SKIP_CUDA_CHECK",
)
"""The only environment variables that are read, so that no secret is ever shown."""
NVIDIA_ON_PCI = "0x10de"  # NVIDIA's vendor id on the PCI bus
_BLOCK_BYTES = 16 * 2**20  # bytes of one write or read of a disk, the same as in NVMe offload


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    """A folder, its file system, its free bytes, and the speed of one large file in it."""

    path: str
    error: str = ""  # why it cannot be used; empty if it can
    file_system: str = ""
    free_bytes: int = 0
    write_bytes_per_second: float = 0.0
    read_bytes_per_second: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuState:
    index: int
    uuid: str
    name: str
    total_bytes: int
    used_bytes: int
    processes: tuple[int, ...] = ()
    slowed: tuple[str, ...] = ()  # why the GPU is throttled now; empty if it is not


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Facts about one node. CUDA versions are (major, minor), sizes are bytes."""

    node: str
    python: str
    nvml_error: str = ""  # why NVML does not answer; empty if it does
    nvidia_device: bool = False  # whether the PCI bus has a device of NVIDIA, whatever NVML says
    driver: str = ""
    driver_cuda: tuple[int, int] | None = None  # the newest CUDA that the driver supports
    gpus: tuple[GpuState, ...] = ()
    link: str = ""  # the slowest between any two GPUs; empty for fewer, or if NVML does not say
    packages: Mapping[str, str] = field(default_factory=dict)  # canonical name -> version
    requirements: tuple[str, ...] = ()  # the versions that this program is tested with
    torch_cuda: tuple[int, int] | None = None  # that torch was built for; None: a CPU build
    bitsandbytes_cuda: tuple[str, ...] = ()  # of its libraries, as "130" for CUDA 13.0
    prebuilt_ops: tuple[str, ...] = ()  # DeepSpeed's ops that need no compiler here
    commands: Mapping[str, str] = field(default_factory=dict)  # those of ``COMMANDS`` -> path
    nvcc_cuda: tuple[int, int] | None = None
    headers: tuple[str, ...] = ()  # which of Python.h and libaio.h this node has
    unheld_build_locks: tuple[str, ...] = ()  # of builds of torch's extensions
    variables: Mapping[str, str] = field(default_factory=dict)
    host_total_bytes: int = 0
    host_available_bytes: int = 0
    shm_free_bytes: int = 0
    disk: Disk | None = None  # the folder for NVMe offload; None: none was named


def look(nvme: Path | None = None) -> Machine:
    """The node that this runs on, with the disk of the folder ``nvme``."""
    import psutil

    host = psutil.virtual_memory()
    # A container may be allowed less memory than its host has. "max" is no limit (cgroups v2).
    limit = math.inf
    with contextlib.suppress(OSError, ValueError):
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
    vendors = Path("/sys/bus/pci/devices").glob("*/vendor")
    return Machine(
        node=environment.node(),
        python=platform.python_version(),
        nvidia_device=any(vendor.read_text().strip() == NVIDIA_ON_PCI for vendor in vendors),
        packages=installed.packages(),
        requirements=installed.requirements(),
        torch_cuda=installed.torch_cuda(),
        bitsandbytes_cuda=installed.bitsandbytes_cuda(),
        prebuilt_ops=installed.prebuilt_ops(),
        commands=installed.commands(),
        nvcc_cuda=installed.nvcc_cuda(),
        headers=installed.headers(),
        unheld_build_locks=installed.unheld_build_locks(),
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
        host_total_bytes=min(host.total, limit),
        host_available_bytes=min(host.available, limit),
        shm_free_bytes=shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0,
        disk=None if nvme is None else probe_disk(nvme),
        **_nvml(),
    )


def _nvml() -> dict[str, Any]:
    try:
        import pynvml
    except ImportError as error:
        return {"nvml_error": str(error)}
    return ask_nvml(pynvml)


def ask_nvml(nvml: Any) -> dict[str, Any]:
    """Driver and GPUs, or the NVMLError, as fields of ``Machine``; ``nvml`` is ``pynvml``."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {"nvml_error": str(error)}
    try:
        cuda = int(nvml.nvmlSystemGetCudaDriverVersion())
        return {
            "driver": str(nvml.nvmlSystemGetDriverVersion()),
            # NVML writes CUDA 12.8 as 12080.
            "driver_cuda": (cuda // 1000, cuda % 1000 // 10),
            "gpus": tuple(_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())),
            "link": _link(nvml),
        }
    except nvml.NVMLError as error:
        return {"nvml_error": str(error)}
    finally:
        nvml.nvmlShutdown()


def _link(nvml: Any) -> str:
    indices = range(nvml.nvmlDeviceGetCount())
    try:
        return slowest_link([nvml.nvmlDeviceGetHandleByIndex(index) for index in indices], nvml)
    except nvml.NVMLError:  # slices of a GPU have no links
        return ""


def _gpu(nvml: Any, index: int) -> GpuState:
    # By index, because GPUs that CUDA_VISIBLE_DEVICES hides are examined, too.
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return GpuState(
        index=index,
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        name=str(nvml.nvmlDeviceGetName(handle)),
        total_bytes=int(memory.total),
        used_bytes=int(memory.used),
        processes=tuple(process.pid for process in processes),
        slowed=slowed_by(nvml, handle),
    )


def probe_disk(folder: Path, size: int = 512 * 2**20) -> Disk:
    """Measure a folder by writing and reading ``size`` bytes, more than most disks' caches hold."""
    path = str(folder)
    try:
        free_bytes = shutil.disk_usage(folder).free
        if free_bytes < 2 * size:  # leave room for others that write to this disk
            return Disk(path=path, error=f"only {free_bytes} bytes are free", free_bytes=free_bytes)
        with tempfile.NamedTemporaryFile(dir=folder, prefix="doctor-") as file:
            write_rate = _write_rate(file.fileno(), size)
            read_rate = _read_rate(file.fileno(), size)
    except OSError as error:
        return Disk(path=path, error=error.strerror or str(error))
    return Disk(
        path=path,
        file_system=mount_of(folder)[1],
        free_bytes=free_bytes,
        write_bytes_per_second=write_rate,
        read_bytes_per_second=read_rate,
    )


def _write_rate(file: int, size: int) -> float:
    block = os.urandom(_BLOCK_BYTES)  # some file systems would compress zeros away
    begin = time.perf_counter()
    for _ in range(size // _BLOCK_BYTES):
        os.write(file, block)
    os.fsync(file)
    return size / (time.perf_counter() - begin)


def _read_rate(file: int, size: int) -> float:
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.lseek(file, 0, os.SEEK_SET)
    begin = time.perf_counter()
    while os.read(file, _BLOCK_BYTES):
        pass
    return size / (time.perf_counter() - begin)
