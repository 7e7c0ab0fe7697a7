"""Whether CUDA still computes on the visible GPU.

After some faults NVML answers for a GPU on which every CUDA call fails. So a process of its own,
``python -m jobs.node.cuda_probe``, computes on it: a dead GPU may kill it, or never let it end.
"""

from __future__ import annotations

import subprocess
import sys

from jobs import own_process
from jobs.node import nvml

TIMEOUT_SECONDS = 60.0
"""More than a process needs, most of it to import torch; a dead GPU may never answer."""


def dead() -> str:
    """Why a process could not compute on the first visible GPU; empty if it could."""
    if not nvml.visible_uuids():
        return ""
    try:
        # In a process of its own, because a CUDA error cannot be undone in the process that met it.
        probe = subprocess.run(
            own_process.command("jobs.node.cuda_probe"),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"a process that computes on it did not end within {TIMEOUT_SECONDS:g} s"
    if probe.returncode == 0:
        return ""
    lines = probe.stderr.strip().splitlines() or [f"exit status {probe.returncode}"]
    return lines[-1]


if __name__ == "__main__":
    import torch

    sys.exit(torch.ones(2, device="cuda").sum().item() != 2)
