"""The facts about this node. ``look()`` gathers them; it judges nothing and imports no torch."""

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from jobs.node import environment
from jobs.node.checks.disk import Disk, probe
from jobs.node.nvml import slowed_by

VARIABLES = (
    "TORCH_CUDA_ARCH_LIST",
    "CUDA_VISIBLE_DEVICES",
    "BNB_CUDA_VERSION",
    "DS_SKIP_CUDA_CHECK",
)
"""The only environment variables that are read, so that no secret is ever shown."""
COMMANDS = ("g++", "gcc", "ninja")
HEADER_FOLDERS = (
    "/usr/include",
    "/usr/local/include",
    f"/usr/include/{platform.machine()}-linux-gnu",
)
NVIDIA_ON_PCI = "0x10de"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU as NVML describes it."""

    index: int
    uuid: str
    name: str
    total_bytes: int
    used_bytes: int
    processes: tuple[int, ...] = ()
    slowed: tuple[str, ...] = ()
    """Why its clocks are held down now, if they are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """Facts about one node. CUDA versions are (major, minor), sizes are bytes."""

    node: str
    python: str
    nvml_error: str = ""
    """Why NVML does not answer; empty if it does."""
    nvidia_device: bool = False
    """Whether the PCI bus has a device of NVIDIA, whatever NVML says."""
    driver: str = ""
    driver_cuda: tuple[int, int] | None = None
    """The newest CUDA that the driver supports."""
    gpus: tuple[Gpu, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)
    """Canonical distribution name -> version."""
    requirements: tuple[str, ...] = ()
    """The versions that this program is tested with, as requirement lines."""
    torch_cuda: tuple[int, int] | None = None
    """The CUDA version that torch was built for; None: a CPU build."""
    bitsandbytes_cuda: tuple[str, ...] = ()
    """The CUDA versions that bitsandbytes has a library for, as it writes them ("130")."""
    prebuilt_ops: tuple[str, ...] = ()
    """DeepSpeed ops that were compiled at its installation and need no compiler here."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """Command -> path, of those of ``COMMANDS`` that are here."""
    nvcc_cuda: tuple[int, int] | None = None
    headers: tuple[str, ...] = ()
    """Those of Python.h and libaio.h that are here."""
    build_locks: tuple[str, ...] = ()
    """Locks that builds of torch extensions hold, or left behind."""
    variables: Mapping[str, str] = field(default_factory=dict)
    host_total_bytes: int = 0
    host_available_bytes: int = 0
    shm_free_bytes: int = 0
    disk: Disk | None = None
    """The folder for NVMe offload; None: none was named."""


def look(nvme: Path | None = None) -> Machine:
    """The node that this runs on.

    ``nvme`` is a folder whose speed to measure; that writes 512 MiB there and removes them.
    """
    import psutil

    host = psutil.virtual_memory()
    limit = _memory_limit()
    commands = {name: shutil.which(name) for name in COMMANDS}
    return Machine(
        node=environment.node(),
        python=platform.python_version(),
        nvidia_device=_has_nvidia_device(),
        packages=_packages(),
        requirements=_requirements(),
        torch_cuda=_torch_cuda(),
        bitsandbytes_cuda=_bitsandbytes_cuda(),
        prebuilt_ops=_prebuilt_ops(),
        commands={name: path for name, path in commands.items() if path},
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
    """Driver and GPUs as fields of ``Machine``; ``nvml`` is the module ``pynvml``.

    An NVMLError becomes ``nvml_error``.
    """
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
    processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return Gpu(
        index=index,
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        name=str(nvml.nvmlDeviceGetName(handle)),
        total_bytes=int(memory.total),
        used_bytes=int(memory.used),
        processes=tuple(process.pid for process in processes),
        slowed=slowed_by(nvml, handle),
    )


def _has_nvidia_device() -> bool:
    vendors = Path("/sys/bus/pci/devices").glob("*/vendor")
    return any(vendor.read_text().strip() == NVIDIA_ON_PCI for vendor in vendors)


def _packages() -> dict[str, str]:
    packages: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:  # a broken installation may have none
            packages[canonicalize_name(name)] = distribution.version
    return packages


def _requirements() -> tuple[str, ...]:
    """From the installed distribution; without one, from the source tree's pyproject.toml."""
    try:
        lines = importlib.metadata.requires("orchestrator") or ()
    except importlib.metadata.PackageNotFoundError:
        project = Path(__file__).parents[3] / "pyproject.toml"
        if not project.exists():
            return ()
        return tuple(tomllib.loads(project.read_text())["project"]["dependencies"])
    return tuple(line for line in lines if "extra ==" not in line)


def _package_folder(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def _torch_cuda() -> tuple[int, int] | None:
    """Read from torch/version.py as text.

    Importing torch takes a second, and some builds look for a GPU then.
    """
    folder = _package_folder("torch")
    text = (folder / "version.py").read_text() if folder else ""
    return _version(re.search(r"^cuda\b.*=\s*'(\d+)\.(\d+)'", text, re.MULTILINE))


def _bitsandbytes_cuda() -> tuple[str, ...]:
    folder = _package_folder("bitsandbytes")
    libraries = sorted(folder.glob("libbitsandbytes_cuda*.so")) if folder else []
    return tuple(library.stem.removeprefix("libbitsandbytes_cuda") for library in libraries)


def _prebuilt_ops() -> tuple[str, ...]:
    """As DeepSpeed's installation noted them; read as text, because deepspeed imports torch."""
    folder = _package_folder("deepspeed")
    notes = folder / "git_version_info_installed.py" if folder else None
    text = notes.read_text() if notes and notes.exists() else ""
    found = re.search(r"^installed_ops\s*=\s*({.*})$", text, re.MULTILINE)
    if found is None:
        return ()
    is_built: dict[str, bool] = ast.literal_eval(found[1])
    return tuple(op for op, built in is_built.items() if built)


def _nvcc_cuda() -> tuple[int, int] | None:
    """Version of the nvcc that torch's extension builder would use.

    That is CUDA_HOME's, else the one on the path, else the one in /usr/local/cuda.
    """
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = f"{home}/bin/nvcc" if home else shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.access(nvcc, os.X_OK):
        return None
    done = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    return _version(re.search(r"release (\d+)\.(\d+)", done.stdout))


def _version(found: re.Match[str] | None) -> tuple[int, int] | None:
    return (int(found[1]), int(found[2])) if found else None


def _headers() -> tuple[str, ...]:
    folders = {"Python.h": (sysconfig.get_path("include"),), "libaio.h": HEADER_FOLDERS}
    return tuple(name for name, places in folders.items() if _is_in_any(name, places))


def _is_in_any(name: str, folders: Sequence[str]) -> bool:
    return any(Path(folder, name).exists() for folder in folders)


def _build_locks() -> tuple[str, ...]:
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or os.path.expanduser("~/.cache/torch_extensions")
    return tuple(str(path) for path in sorted(Path(root).glob("**/lock")))


def _memory_limit() -> float:
    """A container's own limit in bytes; infinite if it has none."""
    try:
        text = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return float("inf")
    return float("inf") if text == "max" else int(text)
