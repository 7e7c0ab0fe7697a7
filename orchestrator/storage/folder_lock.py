"""The lock of a run folder. Only one driver at a time holds it, and it can check that it does."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from pathlib import Path

_RETRY_SECONDS = 0.1
_ATTEMPTS = 3


class NotLockableError(OSError):
    """The path of the lock is taken by something that is not a regular file."""


class FolderLock:
    """A lock file that this process holds until ``release``.

    The kernel locks the file's inode, not its name. If the file or its folder is deleted or
    renamed, another process can lock a new file of the same name. ``is_ours`` notices that.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def is_ours(self) -> bool:
        """Whether the path still names the locked file."""
        # While the descriptor is open, the file system gives its inode to no other file.
        return _leads_to(self._path, self._descriptor)

    def release(self) -> None:
        """Let go of the lock. The file stays, because another process may wait for it."""
        os.close(self._descriptor)


def acquire(path: Path) -> FolderLock | None:
    """The lock at ``path``, or None if another process holds it.

    Raises NotLockableError if the path is taken by anything but a regular file. Raises
    OSError if the file cannot be opened.
    """
    for _ in range(_ATTEMPTS):
        descriptor = _open(path, os.O_RDWR | os.O_CREAT)
        if _try_lock(descriptor, fcntl.LOCK_EX) and _leads_to(path, descriptor):
            return FolderLock(path, descriptor)
        # Try again after a moment. ``is_held`` of another process may hold the lock briefly, or the
        # file may have been replaced between opening and locking it.
        os.close(descriptor)
        time.sleep(_RETRY_SECONDS)
    return None


def is_held(path: Path) -> bool:
    """Whether a process holds the lock at ``path``."""
    try:
        descriptor = _open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _open(path: Path, flags: int) -> int:
    """Open a regular file, without blocking on a pipe and without following a link."""
    safe_flags = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | safe_flags, 0o666)
    except OSError as error:
        # These errors mean a pipe without a reader, a link, a folder or a missing device.
        if error.errno in (errno.ENXIO, errno.ELOOP, errno.EISDIR, errno.ENODEV):
            raise _not_lockable(path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_lockable(path)
    return descriptor


def _not_lockable(path: Path) -> NotLockableError:
    return NotLockableError(errno.EINVAL, "it is no regular file; move it away", str(path))


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _leads_to(path: Path, descriptor: int) -> bool:
    """Whether ``path`` names the same file as the open ``descriptor``."""
    try:
        named = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    opened = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)
