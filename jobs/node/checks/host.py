"""Host memory, shared memory and the disk for NVMe offload."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.node.checks.base import Check, Finding, gib, ok, problem, warning
from jobs.node.checks.machine import Machine

LEAST_HOST_BYTES = 8 * 2**30
"""A trial's process with its libraries needs 2 to 4 GiB; offload adds the optimizer's 12 bytes a parameter."""
LEAST_SHM_BYTES = 2**30
"""Data loader workers hand batches over through /dev/shm; containers get 64 MiB unless told otherwise."""
FAST_BYTES_PER_SECOND = 10**9
"""One NVMe drive reads and writes faster than this, disks behind SATA or a network mostly do not."""


def memory(machine: Machine) -> Iterator[Finding]:
    """Enough free host memory for a trial."""
    figures = f"{gib(machine.host_available_bytes)} of {gib(machine.host_total_bytes)} host memory available"
    if machine.host_available_bytes < LEAST_HOST_BYTES:
        yield warning(
            figures, "end other programs, or measure few trials at once; offload needs the most"
        )
    else:
        yield ok(figures)


def shared_memory(machine: Machine) -> Iterator[Finding]:
    """Enough /dev/shm for data loader workers and Ray's object store."""
    figures = f"{gib(machine.shm_free_bytes)} free in /dev/shm"
    if machine.shm_free_bytes < LEAST_SHM_BYTES:
        yield warning(
            f"only {figures}: data loader workers die of a bus error, Ray falls back to the disk",
            "docker run --shm-size=8g, or in Kubernetes an emptyDir of medium Memory at /dev/shm",
        )
    else:
        yield ok(figures)


def disk(machine: Machine) -> Iterator[Finding]:
    """The folder for NVMe offload is on a fast disk."""
    if machine.disk is None:
        return
    found = machine.disk
    if found.error:
        yield problem(
            f"{found.path} cannot hold NVMe offload: {found.error}",
            "name a writable folder on NVMe",
        )
        return
    speeds = (found.write_bytes_per_second, found.read_bytes_per_second)
    figures = (
        f"{found.path} ({found.file_system or 'unknown file system'}): writes {speeds[0] / 1e9:.2f} GB/s,"
        f" reads {speeds[1] / 1e9:.2f} GB/s, {gib(found.free_bytes)} free"
    )
    if found.file_system in ("tmpfs", "ramfs"):
        yield warning(f"{figures}: this is memory, not a disk", "name a folder on NVMe")
    elif min(speeds) < FAST_BYTES_PER_SECOND:
        yield warning(f"{figures}: offload there would measure the disk", "name a folder on NVMe")
    else:
        yield ok(figures)


CHECKS = (
    Check(name="memory", judge=memory),
    Check(name="shared memory", judge=shared_memory),
    Check(name="disk", judge=disk),
)
