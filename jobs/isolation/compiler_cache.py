"""Removes incomplete libraries from TorchInductor's cache after the process that wrote them died.

TorchInductor links a library at its final path, and later takes any file at this path for complete.
So a trial that is ended while it links would make all later trials with the same kernel fail, and
the user's own training, too.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
_NO_FILE_NAME = re.compile(r'[\\/:*?"<>|]')
_SETTLING_SECONDS = 0.5
"""If a library did not change for so long, its linker has ended."""
_HEADER_BYTES = 64
_SECTIONS = struct.Struct("<Q10xHH")
"""Of an ELF header: offset of the section headers, size of one of them, and their number."""
_SECTIONS_AT = 0x28


def remove_incomplete(since: float) -> list[Path]:
    """Remove the incomplete libraries that changed after ``since``, in seconds of Unix time.

    Libraries that another process still writes are kept. Returns what was removed.
    """
    before = {path: path.stat() for path in _incomplete(since)}
    if not before:
        return []
    time.sleep(_SETTLING_SECONDS)
    removed = []
    for path in _incomplete(since):
        was = before.get(path)
        if was is not None and path.stat().st_mtime_ns == was.st_mtime_ns:
            with contextlib.suppress(OSError):
                path.unlink()
                removed.append(path)
    return removed


def folder() -> Path:
    """TorchInductor's cache, by the rule of ``torch._inductor.runtime.cache_dir_utils``."""
    if os.environ.get(_FOLDER):
        return Path(os.environ[_FOLDER])
    user = _NO_FILE_NAME.sub("_", getpass.getuser())
    return Path(tempfile.gettempdir(), f"torchinductor_{user}")


def _incomplete(since: float) -> Iterator[Path]:
    for path in folder().glob("*/*.so"):
        with contextlib.suppress(OSError):  # another process may remove it
            if path.stat().st_mtime >= since and not _is_complete(path):
                yield path


def _is_complete(library: Path) -> bool:
    """Whether a library has its section headers, which a linker puts at the end."""
    with library.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES:
        return False
    offset, size, count = _SECTIONS.unpack_from(header, _SECTIONS_AT)
    return bool(offset + size * count <= library.stat().st_size)
