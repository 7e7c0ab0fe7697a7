"""Whether CUDA computes on the GPU in hand: after some faults NVML still answers for a GPU on which every call fails.

``python -m jobs.node.cuda_probe`` is the process that is asked; a dead GPU may end it, or never let it answer.
"""

from __future__ import annotations

import subprocess
import sys

from jobs.node import nvml

_PATIENCE_SECONDS = 60.0
"""Most of what it takes is importing torch."""


def dead() -> str:
    """The last words of a process that could not compute on the first visible GPU; empty where it could, or is none."""
    if not nvml.visible_uuids():
        return ""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "jobs.node.cuda_probe"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"a process that computes on it did not end within {_PATIENCE_SECONDS:g} s"
    return (
        (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        if done.returncode
        else ""
    )


if __name__ == "__main__":
    import torch

    sys.exit(torch.ones(2, device="cuda").sum().item() != 2)
