"""The names of the run folder's files, and how a file is replaced in one step."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

RUN = "run.json"
RECORDS = "records"
LOGS = "logs"
SUPERSEDED = "superseded"
TRIALS = "trials.parquet"
STEPS = "steps.parquet"
ANATOMY = "anatomy.parquet"
FRONTIER = "frontier.parquet"
REPORT_HTML = "report.html"
REPORT_MARKDOWN = "report.md"
FRONTIER_PLOT = "frontier.png"
RESULT = "result.json"


def record_files(run_folder: Path) -> list[Path]:
    """The records' files, by name; none without a folder. Raises OSError if it cannot be listed."""
    folder = run_folder / RECORDS
    # A path that is no run folder has no records. The reader of the tables then reports it.
    if not os.path.isdir(run_folder):
        return []
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(folder / name for name in names if name.endswith(".json"))


@contextlib.contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A temporary path for a file's new content, moved to ``path`` at the end unless there was an
    error."""
    # In the same folder, because only a move within one filesystem is atomic. The process id keeps
    # two writers apart.
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        try:
            partial.replace(path)
        except OSError as error:  # named after the file that the user knows
            raise OSError(error.errno, error.strerror, str(path)) from None
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()  # frees the space on a full disk
        raise


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
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return os.fdopen(descriptor, "wb" if flags & os.O_WRONLY else "rb")
    except OSError:
        os.close(descriptor)
        raise
