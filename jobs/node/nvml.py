"""What NVML reports about the visible GPUs, by UUID. Nothing here creates a CUDA context."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def session() -> Iterator[Any]:
    """The initialised ``pynvml`` module, or None without an NVIDIA driver."""
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
    """UUIDs of the GPUs that CUDA would show this process, in CUDA's order."""
    with session() as nvml:
        if nvml is None:
            return []
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        uuids = [str(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return uuids if chosen is None else _chosen(uuids, chosen)


def _chosen(uuids: list[str], visible_devices: str) -> list[str]:
    """The UUIDs that a value of CUDA_VISIBLE_DEVICES chooses, by index or by UUID's beginning."""
    chosen: list[str] = []
    for part in visible_devices.split(","):
        word = part.strip()
        if word.isdigit() and int(word) < len(uuids):
            chosen.append(uuids[int(word)])
        elif word.startswith(("GPU-", "MIG-")):
            # NVML does not list MIG slices, so an unknown UUID may be one.
            chosen += [uuid for uuid in uuids if uuid.startswith(word)] or [word]
        else:
            break  # CUDA ignores everything from the first invalid entry on
    return chosen


def visible_device(uuid: str) -> str:
    """The value of CUDA_VISIBLE_DEVICES that shows this GPU alone: its index in PCI order, because
    DeepSpeed cannot parse UUIDs. A MIG slice has no index of its own."""
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
    """Memory in use on the whole GPU, by all processes."""
    with session() as nvml:
        return int(nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(uuid)).used)


def slowed_by(nvml: Any, handle: Any) -> tuple[str, ...]:
    """Why a GPU is throttled now, in words; empty if it is not, or if NVML does not report it."""
    reasons = {
        "power brake": nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown,
        "hardware thermal limit": nvml.nvmlClocksThrottleReasonHwThermalSlowdown,
        "driver's thermal limit": nvml.nvmlClocksThrottleReasonSwThermalSlowdown,
    }
    try:
        active = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    except nvml.NVMLError:  # MIG slices and some virtual GPUs do not say
        return ()
    return tuple(name for name, bit in reasons.items() if active & bit)
