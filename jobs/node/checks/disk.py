"""How fast a folder's disk is: what NVMe offload would get."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

BLOCK_BYTES = 16 * 2**20
PROBE_BYTES = 512 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    """A folder on a disk: its file system, free bytes, and bytes per second of one large file."""

    path: str
    error: str = ""
    """Why it cannot be used; empty when it can."""
    file_system: str = ""
    free_bytes: int = 0
    write_bytes_per_second: float = 0.0
    read_bytes_per_second: float = 0.0


def probe(folder: Path, size: int = PROBE_BYTES) -> Disk:
    """Writes ``size`` bytes to ``folder``, waits for the disk, reads them past the page cache, removes them."""
    try:
        free = _free_bytes(folder)
        if free < 2 * size:
            return Disk(path=str(folder), error=f"only {free} bytes are free", free_bytes=free)
        with tempfile.NamedTemporaryFile(dir=folder, prefix="doctor-") as file:
            write, read = _write(file.fileno(), size), _read(file.fileno(), size)
    except OSError as error:
        return Disk(path=str(folder), error=error.strerror or str(error))
    return Disk(
        path=str(folder),
        file_system=_file_system(folder),
        free_bytes=free,
        write_bytes_per_second=write,
        read_bytes_per_second=read,
    )


def _free_bytes(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _write(file: int, size: int) -> float:
    block = os.urandom(BLOCK_BYTES)  # zeros would be compressed away by some file systems
    begin = time.perf_counter()
    for _ in range(size // BLOCK_BYTES):
        os.write(file, block)
    os.fsync(file)
    return size / (time.perf_counter() - begin)


def _read(file: int, size: int) -> float:
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.lseek(file, 0, os.SEEK_SET)
    begin = time.perf_counter()
    while os.read(file, BLOCK_BYTES):
        pass
    return size / (time.perf_counter() - begin)


def _file_system(folder: Path) -> str:
    """The type of the mounted file system that holds the folder."""
    real = os.path.realpath(folder)
    mounts = [
        part
        for part in psutil.disk_partitions(all=True)
        if Path(real).is_relative_to(part.mountpoint)
    ]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else ""
