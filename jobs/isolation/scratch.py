"""A temporary folder that is removed after its process, even if the process is killed."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

# What the names of folders begin with.
SLOT_PREFIX = "orchestrator-slot-"  # of slots' parents
PARENTS_PREFIX = "orchestrator-parents-"  # with the sockets of prewarmed parents
RAY_PREFIX = "ray-sweep-"  # of Rays that are started for a sweep
TUNE_PREFIX = "orchestrator-tune-"  # of Ray Tune's own files
PREFIXES = (SLOT_PREFIX, PARENTS_PREFIX, RAY_PREFIX, TUNE_PREFIX)


@contextlib.contextmanager
def own_folder(prefix: str, parent: str | None = None) -> Iterator[Path]:
    """A new folder in ``parent`` (None: of temporary files), removed at the end, and locked while
    this process or a child lives. Unlocked ones of its prefix are removed."""
    remove_abandoned(prefix, parent)
    with contextlib.ExitStack() as stack:
        folder = _locked_folder(prefix, parent, stack)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _locked_folder(prefix: str, parent: str | None, stack: contextlib.ExitStack) -> Path:
    """It has its prefix from the start, so that the next process finds it if this one is killed.
    Before it is locked another process may remove it, and then it is made again."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with contextlib.suppress(OSError):
            stack.enter_context(_locked(folder))
            if folder.exists():
                return folder


def remove_abandoned(prefix: str, parent: str | None = None) -> None:
    """Remove the folders whose processes were killed: nothing holds their locks."""
    for folder in Path(parent or tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError), _locked(folder):  # in use, or another user's
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder. Raises OSError if another process has locked it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        # The kernel drops the lock with the last process that has the folder open.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
