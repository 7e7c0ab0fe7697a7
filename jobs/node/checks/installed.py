"""What is installed on this node to run and to build with; read without importing it."""

import ast
import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sysconfig
import tomllib
from pathlib import Path

from packaging.utils import canonicalize_name

COMMANDS = ("g++", "gcc", "ninja")  # what builds kernels at their first use


def commands() -> dict[str, str]:
    """Command -> its path, for those of ``COMMANDS`` that are installed."""
    return {name: path for name in COMMANDS if (path := shutil.which(name))}


def packages() -> dict[str, str]:
    """Canonical distribution name -> version, of everything that is installed."""
    named = ((item.metadata["Name"], item) for item in importlib.metadata.distributions())
    # A broken installation may have no name.
    return {canonicalize_name(name): item.version for name, item in named if name}


def requirements() -> tuple[str, ...]:
    """This program's requirements without extras, of the distribution or the source tree."""
    try:
        lines = importlib.metadata.requires("training-frontier") or ()
    except importlib.metadata.PackageNotFoundError:
        # The tree's root is three folders above this one.
        project = Path(__file__).parents[3] / "pyproject.toml"
        if not project.exists():
            return ()
        return tuple(tomllib.loads(project.read_text())["project"]["dependencies"])
    return tuple(line for line in lines if "extra ==" not in line)


def _package_files(name: str, pattern: str) -> list[Path]:
    """The files of a package that a pattern names, without importing it; none: not installed."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return []
    return sorted(Path(spec.origin).parent.glob(pattern))


def torch_cuda() -> tuple[int, int] | None:
    """The CUDA version that torch was built for, read from its version.py; None: there is none."""
    text = "".join(file.read_text() for file in _package_files("torch", "version.py"))
    return _version(re.search(r"^cuda\b.*=\s*'(\d+)\.(\d+)'", text, re.MULTILINE))


def bitsandbytes_cuda() -> tuple[str, ...]:
    """The CUDA versions that bitsandbytes has a library for, such as 128 for CUDA 12.8."""
    libraries = _package_files("bitsandbytes", "libbitsandbytes_cuda*.so")
    return tuple(library.stem.removeprefix("libbitsandbytes_cuda") for library in libraries)


def prebuilt_ops() -> tuple[str, ...]:
    """The ops that DeepSpeed compiled when it was installed, without importing it (and torch)."""
    notes = _package_files("deepspeed", "git_version_info_installed.py")
    # The file is Python, with the ops as a literal dictionary: op -> whether it was built.
    text = "".join(file.read_text() for file in notes)
    line = re.search(r"^installed_ops\s*=\s*({.*})$", text, re.MULTILINE)
    is_built: dict[str, bool] = ast.literal_eval(line[1]) if line else {}
    return tuple(op for op, built in is_built.items() if built)


def nvcc_cuda() -> tuple[int, int] | None:
    """The version of the nvcc that torch's extension builder would use; None without an nvcc."""
    # CUDA_HOME's, else the one on the path, else the one in /usr/local/cuda.
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = f"{home}/bin/nvcc" if home else shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.access(nvcc, os.X_OK):
        return None
    done = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    return _version(re.search(r"release (\d+)\.(\d+)", done.stdout))


def _version(match: re.Match[str] | None) -> tuple[int, int] | None:
    return (int(match[1]), int(match[2])) if match else None


def headers() -> tuple[str, ...]:
    """Which of Python.h and libaio.h are in the compiler's folders."""
    debian = f"/usr/include/{platform.machine()}-linux-gnu"
    python = sysconfig.get_path("include")
    places = {"Python.h": (python,), "libaio.h": ("/usr/include", "/usr/local/include", debian)}
    return tuple(
        name
        for name, folders in places.items()
        if any(Path(folder, name).exists() for folder in folders)
    )


def unheld_build_locks() -> tuple[str, ...]:
    """The locks of builds of torch extensions that no process here holds: builds were killed."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or os.path.join(caches, "torch_extensions")
    return tuple(str(path) for path in sorted(Path(root).glob("**/lock")) if not _is_open(path))


def _is_open(file: Path) -> bool:
    path = str(file.resolve())
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
            if os.readlink(descriptor) == path:
                return True
    return False
