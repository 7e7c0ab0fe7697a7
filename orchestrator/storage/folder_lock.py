"""The lock of a run folder. Only one driver at a time holds it, and it can check that it does."""

import errno
import fcntl
import os
import time
from pathlib import Path
from typing import IO

from orchestrator.storage.layout import open_regular


class NotLockableError(OSError):
    """The path of the lock is taken by something that is not a regular file."""


class FolderLock:
    """A lock file that this process holds until ``release``. The kernel locks the inode, not the
    name: if the file or its folder is renamed, another process can lock a new one there."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = file

    def is_ours(self) -> bool:
        """Whether the path still names the locked file."""
        # While the file is open, the file system gives its inode to no other file.
        try:
            return os.path.samestat(self._path.lstat(), os.fstat(self._file.fileno()))
        except OSError:
            return False

    def release(self) -> None:
        """Let go of the lock. The file stays, because another process may wait for it."""
        self._file.close()


def acquire(path: Path) -> FolderLock | None:
    """The lock at ``path``; None if another process holds it. Raises OSError."""
    for _ in range(3):
        file = _open(path, os.O_WRONLY | os.O_CREAT)
        lock = FolderLock(path, file)
        if _try_lock(file, fcntl.LOCK_EX) and lock.is_ours():
            return lock
        # Try again after a moment. ``is_held`` of another process may hold the lock briefly, or the
        # file may have been replaced between opening and locking it.
        lock.release()
        time.sleep(0.1)
    return None


def is_held(path: Path) -> bool:
    """Whether a process holds the lock at ``path``."""
    try:
        with _open(path, os.O_RDONLY) as file:
            return not _try_lock(file, fcntl.LOCK_SH)
    except OSError:
        return False


def _open(path: Path, flags: int) -> IO[bytes]:
    """Open a regular file, without blocking on a pipe and without following a link."""
    try:
        return open_regular(path, flags | os.O_NOFOLLOW)
    except OSError as error:
        # These errors mean a pipe, a link, a folder or a device.
        if error.errno in (errno.EINVAL, errno.ENXIO, errno.ELOOP, errno.EISDIR, errno.ENODEV):
            sentence = "it is no regular file; move it away"
            raise NotLockableError(errno.EINVAL, sentence, str(path)) from error
        raise


def _try_lock(file: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
