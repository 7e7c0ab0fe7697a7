"""Opens only what is a regular file: a pipe in its place would block, and a device never ends."""

import errno
import os
import stat
from pathlib import Path
from typing import IO

LARGEST_BYTES = 2**28
"""Bytes of the largest JSON file that is read. A record with a million steps has less."""


def read_regular(path: Path) -> bytes:
    """The content of a file. Raises FileNotFoundError, or OSError with a reason in words: the path
    names no regular file, or one of more than ``LARGEST_BYTES``."""
    with open_regular(path, os.O_RDONLY) as file:
        size = os.fstat(file.fileno()).st_size
        # A file may have a size without having the bytes: a sparse one takes no room on the disk.
        if size > LARGEST_BYTES:
            reason = f"it has {size:,} bytes, more than any file of a run"
            raise OSError(errno.EFBIG, reason, str(path))
        return file.read()


def open_regular(path: Path, flags: int) -> IO[bytes]:
    """The opened file (``flags`` of ``os.open``), never waiting for a pipe's other end. Raises
    OSError."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        _require_regular(os.fstat(descriptor).st_mode, path)
        return os.fdopen(descriptor, "wb" if flags & os.O_WRONLY else "rb")
    except OSError:
        os.close(descriptor)
        raise


def _require_regular(mode: int, path: Path) -> None:
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
