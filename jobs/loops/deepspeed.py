"""DeepSpeed without its launcher: a world of one process."""

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from jobs.loops.meter import Listener


def prepare(config: Mapping[str, Any], *, nvme_path: str, cpus: int) -> dict[str, Any]:
    """Set this process up as rank 0 of 1; returns the config with ``{nvme}`` filled in."""
    os.environ |= {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "OMP_NUM_THREADS": str(cpus),
    }
    build_for_own_gpu()
    filled: dict[str, Any] = json.loads(json.dumps(config).replace("{nvme}", nvme_path))
    return filled


@contextmanager
def reported_phases(engine: Any, meter: Listener) -> Iterator[None]:
    """While the context lasts, ``meter`` sees the updates of a DeepSpeed engine's backward pass."""
    if not hasattr(engine, "zero_optimization_stage"):
        yield
        return
    step = engine.step

    def reported_step(*args: Any, **kwargs: Any) -> None:
        meter.phase("optimizer")
        step(*args, **kwargs)
        meter.phase("upkeep")

    # An attribute of the instance hides the method of its class until it is deleted.
    engine.step = reported_step
    try:
        yield
    finally:
        del engine.step


def build_for_own_gpu() -> None:
    """Have DeepSpeed build its ops for the visible GPU only: "10.0a" would break its builder."""
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        os.environ["TORCH_CUDA_ARCH_LIST"] = f"{major}.{minor}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
