"""How the GPUs of a node are linked: by NVLink, or by PCIe and what lies between them."""

import itertools
from collections.abc import Sequence
from typing import Any

from jobs.node import nvml

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
    with nvml.session() as pynvml:
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
