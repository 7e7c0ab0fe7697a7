"""Small disks of a test's own, which fill up or run out of inodes. They need a mount namespace."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def mounted(folder: Path, size: int, inodes: int = 4096) -> Iterator[None]:
    """A disk of ``size`` bytes at the folder."""
    options = f"size={size},nr_inodes={inodes}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        # Lazily, because a stopped process may still have a file open.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(file: Path) -> None:
    """Make the file as large as its disk allows, so that no byte is free."""
    with contextlib.suppress(OSError), open(file, "wb", buffering=0) as filler:
        for size in (2**16, 2**12, 1):
            with contextlib.suppress(OSError):
                while True:
                    filler.write(bytes(size))


@contextlib.contextmanager
def without_room(folder: Path) -> Iterator[Path]:
    """No byte is free on the folder's disk while the file that is yielded exists."""
    filler = folder / "filler"
    try:
        fill(filler)
        yield filler
    finally:
        filler.unlink(missing_ok=True)


@contextlib.contextmanager
def without_inodes(folder: Path) -> Iterator[None]:
    """No new file can be made on the folder's disk, though it has free bytes."""
    fillers: list[Path] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                fillers.append(folder / f"filler-{len(fillers)}")
                fillers[-1].touch()
        yield
    finally:
        for filler in fillers:
            filler.unlink(missing_ok=True)
