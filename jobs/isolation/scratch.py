"""A folder for one process and its children, gone with them: what killed owners left is removed by the next."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def own_folder(prefix: str) -> Iterator[Path]:
    """A new folder, its name beginning with ``prefix``, locked while this process or a child of it lives.

    Offloaded states can fill a disk, and a process that was killed does not clean up after itself.
    """
    _remove_abandoned(prefix)
    unnamed = Path(tempfile.mkdtemp(prefix=f"new-{prefix}"))
    with _locked(unnamed):
        # It has its name only now that it is locked, or another process could take it for abandoned.
        folder = unnamed.rename(unnamed.with_name(unnamed.name.removeprefix("new-")))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(prefix: str) -> None:
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError), _locked(left):  # in use, or another user's
            shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock. Raises OSError where it is held already."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(held)
