"""DeepSpeed without its launcher."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from jobs.loops.meter import Listener
from jobs.node.process_group import rank_variables


def prepare(config: Mapping[str, Any], *, nvme_path: str, cpus: int) -> dict[str, Any]:
    """Set a process without a group up as rank 0 of 1; returns the config with ``{nvme}`` filled
    in."""
    if not torch.distributed.is_initialized():
        os.environ.update(rank_variables(1)[0])
    os.environ["OMP_NUM_THREADS"] = str(cpus)
    build_for_own_gpu()
    return json.loads(json.dumps(config).replace("{nvme}", nvme_path))


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
