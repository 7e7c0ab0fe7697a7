"""Small disks of a sweep's own, which fill up, run out of inodes or become read-only."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

RUN_SIZE = "64m"
"""Holds the tables, the page and the records of a small sweep several times."""
TEMPORARY_SIZE = "256m"
INODES = 4096
_BLOCK = bytes(2**16)
_FILLER = "filler"


@contextlib.contextmanager
def mounted(folder: Path, size: str) -> Iterator[None]:
    """A tmpfs of ``size`` at the folder, which is made."""
    folder.mkdir(exist_ok=True)
    options = f"size={size},nr_inodes={INODES}"
    _do("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder))
    try:
        yield
    finally:
        # Lazily, because a stopped process may still have a file open.
        _do("umount", "--lazy", str(folder))


@contextlib.contextmanager
def without_room(disk: Path) -> Iterator[None]:
    """No byte is free on the disk during the context."""
    filler = disk / _FILLER
    try:
        with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
            for block in (_BLOCK, bytes(1)):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(block)
        yield
    finally:
        filler.unlink(missing_ok=True)


@contextlib.contextmanager
def without_inodes(disk: Path) -> Iterator[None]:
    """No new file can be made on the disk during the context, though it has free bytes."""
    fillers = []
    try:
        with contextlib.suppress(OSError):
            for number in range(2 * INODES):
                filler = disk / f"{_FILLER}-{number}"
                filler.touch()
                fillers.append(filler)
        yield
    finally:
        for filler in fillers:
            filler.unlink(missing_ok=True)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder is read-only during the context. Files that are open stay writable."""
    # A bind mount, because the kernel makes no disk read-only while a file is open for writing.
    _do("mount", "--bind", str(folder), str(folder))
    try:
        _do("mount", "-o", "remount,bind,ro", str(folder))
        yield
    finally:
        _do("umount", "--lazy", str(folder))


Damage = Callable[[Path], contextlib.AbstractContextManager[None]]
"""Does something to a folder for as long as the context lasts."""


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
