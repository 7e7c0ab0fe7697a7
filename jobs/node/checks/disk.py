"""Measures the speed of a folder's disk, as NVMe offload would use it."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from jobs.infrastructure import mount_of

BLOCK_BYTES = 16 * 2**20
"""Bytes of one write or read, the same as in NVMe offload."""
PROBE_BYTES = 512 * 2**20
"""The size of the file that is written and read. Most disks' own caches are smaller."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    """A folder, its file system, its free bytes, and the speed of one large file in it."""

    path: str
    error: str = ""
    """Why it cannot be used; empty if it can."""
    file_system: str = ""
    free_bytes: int = 0
    write_bytes_per_second: float = 0.0
    read_bytes_per_second: float = 0.0


def probe(folder: Path, size: int = PROBE_BYTES) -> Disk:
    """Measure a folder: write ``size`` bytes to the disk, read them from it, and remove them."""
    path = str(folder)
    try:
        free_bytes = shutil.disk_usage(folder).free
        if free_bytes < 2 * size:  # leave room for others that write to this disk
            return Disk(path=path, error=f"only {free_bytes} bytes are free", free_bytes=free_bytes)
        with tempfile.NamedTemporaryFile(dir=folder, prefix="doctor-") as file:
            write_rate = _write_rate(file.fileno(), size)
            read_rate = _read_rate(file.fileno(), size)
    except OSError as error:
        return Disk(path=path, error=error.strerror or str(error))
    return Disk(
        path=path,
        file_system=mount_of(folder)[1],
        free_bytes=free_bytes,
        write_bytes_per_second=write_rate,
        read_bytes_per_second=read_rate,
    )


def _write_rate(file: int, size: int) -> float:
    """Bytes per second until the data is on the disk."""
    block = os.urandom(BLOCK_BYTES)  # some file systems would compress zeros away
    begin = time.perf_counter()
    for _ in range(size // BLOCK_BYTES):
        os.write(file, block)
    os.fsync(file)
    return size / (time.perf_counter() - begin)


def _read_rate(file: int, size: int) -> float:
    """Bytes per second from the disk, past the page cache."""
    # Drop the file from the page cache. Otherwise the kernel would answer from memory.
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.lseek(file, 0, os.SEEK_SET)
    begin = time.perf_counter()
    while os.read(file, BLOCK_BYTES):
        pass
    return size / (time.perf_counter() - begin)
