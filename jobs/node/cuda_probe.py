"""Whether CUDA still computes on the visible GPU.

After some faults NVML still answers for a GPU, but every CUDA call on it fails. So a separate
process, ``python -m jobs.node.cuda_probe``, computes on the GPU. A dead GPU may kill that process,
or never let it end.
"""

from __future__ import annotations

import sys

from jobs import self_process
from jobs.node import nvml
from jobs.node.probe_process import probe

TIMEOUT_SECONDS = 60.0
"""More time than the process needs, most of it to import torch. A dead GPU may never answer."""


def dead() -> str:
    """Why a process could not compute on the first visible GPU; empty if it could."""
    if not nvml.visible_uuids():
        return ""
    # In a process of its own, because a CUDA error cannot be undone in the process that met it.
    command = self_process.command("jobs.node.cuda_probe")
    return probe(command, TIMEOUT_SECONDS).error


if __name__ == "__main__":
    import torch

    # True, a wrong sum, is the exit status 1.
    sys.exit(torch.ones(2, device="cuda").sum().item() != 2)
