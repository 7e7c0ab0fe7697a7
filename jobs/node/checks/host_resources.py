"""Checks of the host: its memory, its shared memory, and the disk of NVMe offload."""

from collections.abc import Iterator

from jobs.node.checks.findings import Finding, gib, ok, problem, warning
from jobs.node.checks.machine import Disk, Machine


def memory(machine: Machine) -> Iterator[Finding]:
    """Enough free host memory for a trial."""
    available = gib(machine.host_available_bytes)
    figures = f"{available} of {gib(machine.host_total_bytes)} host memory available"
    fix = "end other programs, or measure few trials at once; offload needs the most"
    # A trial's process needs 2 to 4 GiB. Offload adds the optimizer's 12 bytes per parameter.
    yield warning(figures, fix) if machine.host_available_bytes < 8 * 2**30 else ok(figures)


def shared_memory(machine: Machine) -> Iterator[Finding]:
    """Enough /dev/shm for data-loader workers and Ray's object store."""
    figures = f"{gib(machine.shm_free_bytes)} free in /dev/shm"
    # Containers get 64 MiB by default.
    if machine.shm_free_bytes < 2**30:
        yield warning(
            f"only {figures}: data-loader workers crash with a bus error, and Ray falls back to "
            "the disk",
            "docker run --shm-size=8g, or in Kubernetes an emptyDir of medium Memory at /dev/shm",
        )
    else:
        yield ok(figures)


def disk(machine: Machine) -> Iterator[Finding]:
    """The folder for NVMe offload is on a fast disk."""
    if machine.disk is not None:
        yield _judged(machine.disk)


def _judged(disk: Disk) -> Finding:
    fix = "name a writable folder on NVMe"
    if disk.error:
        return problem(f"{disk.path} cannot hold NVMe offload: {disk.error}", fix)
    write = disk.write_bytes_per_second / 1e9
    read = disk.read_bytes_per_second / 1e9
    figures = (
        f"{disk.path} ({disk.file_system}): writes {write:.2f} GB/s, reads {read:.2f} GB/s, "
        f"{gib(disk.free_bytes)} free"
    )
    if disk.file_system in ("tmpfs", "ramfs"):
        return warning(f"{figures}: this is memory, not a disk", fix)
    # One NVMe drive is faster; disks behind SATA or a network mostly are not.
    if min(write, read) < 1.0:
        return warning(f"{figures}: offload there would measure the disk", fix)
    return ok(figures)


CHECKS = {"memory": memory, "shared memory": shared_memory, "disk": disk}
