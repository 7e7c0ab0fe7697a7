"""Removes incomplete libraries from TorchInductor's cache after the process that wrote them died.

TorchInductor takes any file at a library's path for complete, so later trainings would fail.
"""

import contextlib
import getpass
import os
import re
import struct
import tempfile
import time
from pathlib import Path

_ELF_HEADER = struct.Struct("<40xQ10xHHxx")
"""Of an ELF header: offset of the section headers, size of one of them, and their number."""


def remove_incomplete(since: float) -> list[Path]:
    """Remove incomplete libraries that changed after ``since`` (Unix time) and change no more."""
    before = _incomplete(since)
    if not before:
        return []
    time.sleep(0.5)  # if a library did not change for so long, its linker has ended
    removed = [path for path, _ in before.items() & _incomplete(since).items()]
    for path in removed:
        with contextlib.suppress(OSError):
            path.unlink()
    return removed


def folder() -> Path:
    """TorchInductor's cache, by the rule of ``torch._inductor.runtime.cache_dir_utils``."""
    if chosen := os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        return Path(chosen)
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user without a name
        user = f"uid_{os.getuid()}"
    name = re.sub(r'[\\/:*?"<>|]', "_", user)
    return Path(tempfile.gettempdir(), f"torchinductor_{name}")


def _incomplete(since: float) -> dict[Path, float]:
    """Incomplete library -> the time of its last change, of those that changed after ``since``."""
    found = {}
    for path in folder().glob("*/*.so"):
        with contextlib.suppress(OSError):  # another process may remove it
            changed = path.stat().st_mtime
            if changed >= since and not _is_complete(path):
                found[path] = changed
    return found


def _is_complete(library: Path) -> bool:
    """Whether a library has its section headers, which a linker puts at the end."""
    with library.open("rb") as file:
        header = file.read(_ELF_HEADER.size)
    if len(header) < _ELF_HEADER.size:
        return False
    offset, size, count = _ELF_HEADER.unpack(header)
    return bool(offset + size * count <= library.stat().st_size)
