"""Keeps Python's bytecode in a cache of this program, where Python keeps none.

Container images often set PYTHONDONTWRITEBYTECODE, and install packages without bytecode. Then
every process compiles all the source that it imports, which takes three times as long.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from pathlib import Path

_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_FOLDER = "PYTHONPYCACHEPREFIX"
_LARGEST = "torch"
"""The package with the most source. Its bytecode stands for that of all packages."""


def keep_bytecode() -> None:
    """Have this process and those that it starts keep their bytecode, if Python would keep none.

    It is kept in the user's cache folder, and not beside the source. Nothing changes if torch has
    bytecode already, if the user has chosen a folder, or if the cache cannot be written. Processes
    that ``multiprocessing`` spawns read the bytecode, but write none.
    """
    if not sys.dont_write_bytecode or sys.pycache_prefix is not None or _has_bytecode(_LARGEST):
        return
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(cache) / "orchestrator" / "bytecode"
    if not _is_writable(folder):
        return
    os.environ[_FOLDER] = sys.pycache_prefix = str(folder)
    os.environ.pop(_NO_BYTECODE, None)
    sys.dont_write_bytecode = False


def _is_writable(folder: Path) -> bool:
    """Create a folder if there is none. Returns whether this process can write to it."""
    if not folder.is_absolute():  # the user has no home folder
        return False
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.access(folder, os.W_OK)


def _has_bytecode(package: str) -> bool:
    """Whether a package has bytecode beside its source; also if it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.cached is None:
        return True
    return Path(spec.cached).exists()
