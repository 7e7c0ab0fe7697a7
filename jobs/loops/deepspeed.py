"""DeepSpeed without its launcher: a world of one process, its environment variables, and the paths in its config."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from jobs.loops.meter import Listener


def prepare(config: Mapping[str, Any], *, nvme_path: str, cpus: int) -> dict[str, Any]:
    """Set this process up as rank 0 of 1 and return the config with ``{nvme}`` filled in.

    Without these variables DeepSpeed reaches for mpi4py. The port is a free one, so that neighbours do not meet.
    """
    os.environ |= {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "OMP_NUM_THREADS": str(cpus),
    }
    use_own_architecture()
    filled: dict[str, Any] = json.loads(json.dumps(config).replace("{nvme}", nvme_path))
    return filled


@contextmanager
def phases(engine: Any, meter: Listener) -> Iterator[None]:
    """Tell ``meter`` when DeepSpeed's engine updates, which happens within the Trainer's backward pass.

    Its clipping is part of the update. Anything but an engine is left alone.
    """
    if not hasattr(engine, "zero_optimization_stage"):
        yield
        return
    step = engine.step

    def told(*args: Any, **kwargs: Any) -> None:
        meter.phase("optimizer")
        step(*args, **kwargs)
        meter.phase("upkeep")

    engine.step = told
    try:
        yield
    finally:
        del engine.step


def use_own_architecture() -> None:
    """Build DeepSpeed's ops for the GPU in hand only; a foreign list such as "10.0a" would break the builder."""
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        os.environ["TORCH_CUDA_ARCH_LIST"] = f"{major}.{minor}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
