"""Keeps Python's bytecode in a cache of this program, where Python keeps none.

Container images often set PYTHONDONTWRITEBYTECODE. Then imports take three times as long.
"""

import contextlib
import importlib.util
import os
import sys
from pathlib import Path


def keep_bytecode() -> None:
    """Have this process and those that it starts keep their bytecode in the user's cache folder,
    unless torch has bytecode, the user has chosen a folder, or it cannot be written."""
    if not sys.dont_write_bytecode or sys.pycache_prefix is not None:
        return
    # torch has the most source: its bytecode stands for that of all packages.
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.cached is None or Path(torch.cached).exists():
        return
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(cache) / "orchestrator" / "bytecode"
    if not folder.is_absolute():  # the user has no home folder
        return
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.access(folder, os.W_OK):
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(folder)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
