"""The GPU in hand, as NVIDIA's management library sees it: addressed by UUID, without creating a CUDA context."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

IDLE_BYTES = 2**30
"""More than a driver keeps of an idle GPU for itself (615 MiB of an H200)."""


@contextmanager
def session() -> Iterator[Any]:
    """The initialised ``pynvml`` module, or None where there is no NVIDIA driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def visible_uuids() -> list[str]:
    """UUIDs of the GPUs that CUDA would show this process, in its order; empty where there are none."""
    with session() as nvml:
        if nvml is None:
            return []
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        uuids = [str(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return uuids
    chosen = []
    for word in (part.strip() for part in wanted.split(",")):
        if word.isdigit() and int(word) < len(uuids):
            chosen.append(uuids[int(word)])
        elif word.startswith(("GPU-", "MIG-")):
            chosen += [uuid for uuid in uuids if uuid.startswith(word)] or [word]
        else:
            break  # CUDA stops at the first entry it cannot use
    return chosen


def visible_device(uuid: str) -> str:
    """What to set CUDA_VISIBLE_DEVICES to for this GPU alone, in PCI order: its index, which DeepSpeed can parse.

    A MIG slice has no index of its own and keeps its UUID.
    """
    if uuid.startswith("MIG-"):
        return uuid
    with session() as nvml:
        return str(nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByUUID(uuid)))


def compute_capability(uuid: str) -> tuple[int, int]:
    """(major, minor) of a GPU. Raises NVMLError for an unknown UUID."""
    with session() as nvml:
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(nvml.nvmlDeviceGetHandleByUUID(uuid))
        return int(major), int(minor)


def used_bytes(uuid: str) -> int:
    """Memory in use on the whole GPU, in bytes, whoever uses it."""
    with session() as nvml:
        return int(nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(uuid)).used)


def lost() -> str:
    """What the driver says when a visible GPU answers no more, fallen off the bus for one; empty while all do."""
    import pynvml

    try:
        for uuid in visible_uuids():
            used_bytes(uuid)
    except pynvml.NVMLError as error:
        return str(error)
    return ""


def shared(waiting: int = 0) -> str:
    """Who else is on the first visible GPU, while no trial of ours is: processes, or memory without a name; or nobody.
    So many processes of ours may wait on it, with nothing but a context.

    In a container NVML may see the memory and not whose it is.
    """
    for uuid in visible_uuids()[:1]:
        with session() as nvml:
            handle, processes = nvml.nvmlDeviceGetHandleByUUID(uuid), 0
            with contextlib.suppress(nvml.NVMLError):
                processes = len(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
            used = int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
        if processes > waiting or used > (1 + waiting) * IDLE_BYTES:
            return f"{used / 2**30:.1f} GiB are in use on it, by {processes or 'unseen'} processes"
    return ""
