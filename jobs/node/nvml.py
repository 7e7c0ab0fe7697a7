"""What NVML reports about GPUs, by UUID, and their links. Nothing here creates a CUDA context."""

import itertools
import os
from collections.abc import Iterator, Sequence
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


_PATHS = {
    "NVML_TOPOLOGY_INTERNAL": "PCIe on one board",
    "NVML_TOPOLOGY_SINGLE": "PCIe through one switch",
    "NVML_TOPOLOGY_MULTIPLE": "PCIe through several switches",
    "NVML_TOPOLOGY_HOSTBRIDGE": "PCIe through the host bridge",
    "NVML_TOPOLOGY_NODE": "PCIe within a NUMA node",
    "NVML_TOPOLOGY_SYSTEM": "PCIe across sockets",
}
"""NVML's level of the nearest common ancestor -> the path in words, the fastest first."""


def link_of(uuids: Sequence[str | None]) -> str | None:
    """The slowest link between any two of these GPUs; None for fewer than two, or if NVML does not
    say."""
    with session() as pynvml:
        if pynvml is None or None in uuids:
            return None
        try:
            handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
            return slowest_link(handles, pynvml) or None
        except pynvml.NVMLError:  # a slice of a GPU has no link of its own
            return None


def slowest_link(handles: Sequence[Any], pynvml: Any) -> str:
    """That between any two GPUs, given by NVML's handles; empty for fewer. Raises NVMLError."""
    links = [_between(pynvml, *pair) for pair in itertools.combinations(handles, 2)]
    return max(links, key=["NVLink", *_PATHS.values()].index, default="")


def _between(pynvml: Any, one: Any, other: Any) -> str:
    status = pynvml.nvmlDeviceGetP2PStatus(one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    if status == pynvml.NVML_P2P_STATUS_OK:
        return "NVLink"
    level = pynvml.nvmlDeviceGetTopologyCommonAncestor(one, other)
    return next(words for name, words in _PATHS.items() if getattr(pynvml, name) >= level)
