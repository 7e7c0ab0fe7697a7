"""What there is on this node, looked at once: ``look()`` gathers, judges nothing, imports no torch and no CUDA."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sysconfig
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from jobs.node import environment
from jobs.node.checks.disk import Disk, probe

VARIABLES = (
    "TORCH_CUDA_ARCH_LIST",
    "CUDA_VISIBLE_DEVICES",
    "BNB_CUDA_VERSION",
    "DS_SKIP_CUDA_CHECK",
)
"""The only environment variables that are read; no other one's value is ever shown."""
COMMANDS = ("g++", "gcc", "ninja")
HEADER_FOLDERS = (
    "/usr/include",
    "/usr/local/include",
    f"/usr/include/{platform.machine()}-linux-gnu",
)
NVIDIA_ON_PCI = "0x10de"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU as NVML describes it. ``slowed`` names why its clocks are held down, where they are."""

    index: int
    uuid: str
    name: str
    total_bytes: int
    used_bytes: int
    processes: tuple[int, ...] = ()
    slowed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Facts about one node. Versions are text as reported, CUDA versions (major, minor), sizes bytes."""

    node: str
    python: str
    nvml_error: str = ""
    """Why NVML cannot be asked; empty when it can."""
    nvidia_device: bool = False
    """The PCI bus has a device of NVIDIA's, whatever NVML says."""
    driver: str = ""
    driver_cuda: tuple[int, int] | None = None
    """The newest CUDA that the driver supports."""
    gpus: tuple[Gpu, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)
    """Canonical distribution name -> version."""
    requirements: tuple[str, ...] = ()
    """What this program is tested with, as requirement lines."""
    torch_cuda: tuple[int, int] | None = None
    """The CUDA that torch was built for; None for a CPU build."""
    bitsandbytes_cuda: tuple[str, ...] = ()
    """The CUDA versions bitsandbytes brings a library for, as it writes them ("130")."""
    prebuilt_ops: tuple[str, ...] = ()
    """DeepSpeed ops that were compiled when it was installed, and need no compiler here."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """Command -> path, of those found."""
    nvcc_cuda: tuple[int, int] | None = None
    headers: tuple[str, ...] = ()
    """Of Python.h and libaio.h, those found."""
    build_locks: tuple[str, ...] = ()
    """Locks that builds of torch extensions hold, or left behind."""
    variables: Mapping[str, str] = field(default_factory=dict)
    host_total_bytes: int = 0
    host_available_bytes: int = 0
    shm_free_bytes: int = 0
    disk: Disk | None = None
    """The folder for NVMe offload, if one was named."""


def look(nvme: Path | None = None) -> Machine:
    """The node this runs on; ``nvme`` is a folder whose speed to measure (writes and removes 512 MiB there)."""
    import psutil

    host = psutil.virtual_memory()
    limit = _memory_limit()
    return Machine(
        node=environment.node(),
        python=platform.python_version(),
        nvidia_device=_nvidia_device(),
        packages=_packages(),
        requirements=_requirements(),
        torch_cuda=_torch_cuda(),
        bitsandbytes_cuda=_bitsandbytes_cuda(),
        prebuilt_ops=_prebuilt_ops(),
        commands={name: path for name in COMMANDS if (path := shutil.which(name))},
        nvcc_cuda=_nvcc_cuda(),
        headers=_headers(),
        build_locks=_build_locks(),
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
        host_total_bytes=min(host.total, limit),
        host_available_bytes=min(host.available, limit),
        shm_free_bytes=shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0,
        disk=None if nvme is None else probe(nvme),
        **_nvml(),
    )


def _nvml() -> dict[str, Any]:
    try:
        import pynvml
    except ImportError as error:
        return {"nvml_error": str(error)}
    return ask_nvml(pynvml)


def ask_nvml(nvml: Any) -> dict[str, Any]:
    """Driver and GPUs as ``Machine``'s fields, from the ``pynvml`` module; an NVMLError becomes ``nvml_error``."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {"nvml_error": str(error)}
    try:
        cuda = int(nvml.nvmlSystemGetCudaDriverVersion())
        return {
            "driver": str(nvml.nvmlSystemGetDriverVersion()),
            "driver_cuda": (cuda // 1000, cuda % 1000 // 10),
            "gpus": tuple(_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())),
        }
    except nvml.NVMLError as error:
        return {"nvml_error": str(error)}
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(
        index=index,
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        name=str(nvml.nvmlDeviceGetName(handle)),
        total_bytes=int(memory.total),
        used_bytes=int(memory.used),
        processes=tuple(
            process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        ),
        slowed=slowed_by(nvml, handle),
    )


def slowed_by(nvml: Any, handle: Any) -> tuple[str, ...]:
    """Why a GPU's clocks are held down now, in words; empty when they are not, or it cannot say."""
    reasons = {
        "power brake": nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
        "hardware thermal limit": nvml.nvmlClocksThrottleReasonHwThermalSlowdown,
        "driver's thermal limit": nvml.nvmlClocksThrottleReasonSwThermalSlowdown,
    }
    try:
        held = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    except nvml.NVMLError:  # MIG slices and some virtual GPUs do not say
        return ()
    return tuple(name for name, bit in reasons.items() if held & bit)


def _nvidia_device() -> bool:
    vendors = Path("/sys/bus/pci/devices").glob("*/vendor")
    return any(vendor.read_text().strip() == NVIDIA_ON_PCI for vendor in vendors)


def _packages() -> dict[str, str]:
    found = importlib.metadata.distributions()
    return {
        canonicalize_name(one.metadata["Name"]): one.version
        for one in found
        if one.metadata["Name"]
    }


def _requirements() -> tuple[str, ...]:
    """From the installed distribution; from the source tree where only the code came along."""
    try:
        return tuple(
            line
            for line in importlib.metadata.requires("orchestrator") or ()
            if "extra ==" not in line
        )
    except importlib.metadata.PackageNotFoundError:
        project = Path(__file__).parents[3] / "pyproject.toml"
        return (
            tuple(tomllib.loads(project.read_text())["project"]["dependencies"])
            if project.exists()
            else ()
        )


def _package_folder(name: str) -> Path | None:
    found = importlib.util.find_spec(name)
    return Path(found.origin).parent if found and found.origin else None


def _torch_cuda() -> tuple[int, int] | None:
    """Read from torch/version.py as text: importing torch takes a second, and some builds look for a GPU."""
    folder = _package_folder("torch")
    text = (folder / "version.py").read_text() if folder else ""
    found = re.search(r"^cuda\b.*=\s*'(\d+)\.(\d+)'", text, re.MULTILINE)
    return (int(found[1]), int(found[2])) if found else None


def _bitsandbytes_cuda() -> tuple[str, ...]:
    folder = _package_folder("bitsandbytes")
    libraries = sorted(folder.glob("libbitsandbytes_cuda*.so")) if folder else []
    return tuple(library.stem.removeprefix("libbitsandbytes_cuda") for library in libraries)


def _prebuilt_ops() -> tuple[str, ...]:
    """As DeepSpeed's installation noted them, read as text: importing deepspeed imports torch."""
    folder = _package_folder("deepspeed")
    notes = folder / "git_version_info_installed.py" if folder else None
    text = notes.read_text() if notes and notes.exists() else ""
    found = re.search(r"^installed_ops\s*=\s*({.*})$", text, re.MULTILINE)
    return (
        tuple(name for name, built in ast.literal_eval(found[1]).items() if built) if found else ()
    )


def _nvcc_cuda() -> tuple[int, int] | None:
    """The compiler that torch's extension builder would take: CUDA_HOME's, the path's, /usr/local/cuda's."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = f"{home}/bin/nvcc" if home else shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.access(nvcc, os.X_OK):
        return None
    answer = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"release (\d+)\.(\d+)", answer)
    return (int(found[1]), int(found[2])) if found else None


def _headers() -> tuple[str, ...]:
    folders = {"Python.h": (sysconfig.get_path("include"),), "libaio.h": HEADER_FOLDERS}
    return tuple(
        name
        for name, where in folders.items()
        if any(Path(folder, name).exists() for folder in where)
    )


def _build_locks() -> tuple[str, ...]:
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or os.path.expanduser("~/.cache/torch_extensions")
    return tuple(str(path) for path in sorted(Path(root).glob("**/lock")))


def _memory_limit() -> float:
    """A container's own limit in bytes; infinite where there is none."""
    try:
        text = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return float("inf")
    return float("inf") if text == "max" else int(text)
