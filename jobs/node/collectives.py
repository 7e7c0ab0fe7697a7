"""The speed of collective operations among the GPUs of a node, or of processes without GPUs."""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from jobs import self_process
from jobs.node import environment, nvml, process_group
from jobs.node.processes import probe, process_variables

GPU_SIZES = (2**20, 2**25, 2**29)
"""Bytes of the whole tensor: a small layer's, a block's, and those of all blocks together."""
CPU_SIZES = (2**12, 2**16, 2**20)
_ROUNDS = 5
_SECONDS = 120.0
"""How long the processes may take, imports included."""
_TRAFFIC = {"all-reduce": 2.0, "all-gather": 1.0, "reduce-scatter": 1.0}
"""How often a rank sends the parts of the others, as NCCL's own tests count the bus."""


def measure(world_size: int) -> list[dict[str, Any]]:
    """Operation, bytes, seconds and bytes per second of the bus, for three sizes of each operation.
    The processes have a visible GPU each, or none at all. Raises RuntimeError if one fails."""
    devices = [nvml.visible_device(uuid) for uuid in nvml.visible_uuids()[:world_size]]
    with (
        tempfile.TemporaryDirectory(prefix="collectives-") as folder,
        ThreadPoolExecutor(world_size) as pool,
    ):
        variables = process_group.rank_variables(world_size, Path(folder))
        for own, device in zip(variables, devices, strict=False):
            own["CUDA_VISIBLE_DEVICES"] = device
        outputs = list(pool.map(_run_rank, variables))
    return json.loads(outputs[0])


def _run_rank(variables: dict[str, str]) -> str:
    own = {**os.environ, **process_variables(environment.cores()), **variables}
    return probe(self_process.command("jobs.node.collectives"), _SECONDS, own)


def _measured() -> list[dict[str, Any]]:
    """As one of the ranks, which all run the same operations in the same order."""
    import torch

    world_size = int(os.environ["WORLD_SIZE"])
    process_group.join(world_size, _SECONDS / 2)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    figures = []
    for size in GPU_SIZES if device.type == "cuda" else CPU_SIZES:
        whole = torch.zeros(size, dtype=torch.uint8, device=device).view(torch.bfloat16)
        for name, operation in _operations(whole, world_size):
            seconds = _median_seconds(operation, calls=max(2, min(50, 2**28 // size)))
            sent = _TRAFFIC[name] * size * (world_size - 1) / world_size
            figures.append(
                {
                    "operation": name,
                    "bytes": size,
                    "seconds": seconds,
                    "bus_bytes_per_second": sent / seconds,
                }
            )
    torch.distributed.destroy_process_group()
    return figures


def _operations(whole: Any, world_size: int) -> Sequence[tuple[str, Callable[[], object]]]:
    from torch import distributed

    part = whole[: len(whole) // world_size].clone()
    return (
        ("all-reduce", lambda: distributed.all_reduce(whole)),
        ("all-gather", lambda: distributed.all_gather_into_tensor(whole, part)),
        ("reduce-scatter", lambda: distributed.reduce_scatter_tensor(part, whole)),
    )


def _median_seconds(operation: Callable[[], object], calls: int) -> float:
    _seconds(operation, 2)  # the first calls connect the ranks
    return statistics.median(_seconds(operation, calls) for _ in range(_ROUNDS)) / calls


def _seconds(operation: Callable[[], object], calls: int) -> float:
    import torch

    torch.distributed.barrier()
    _finish()
    begin = time.perf_counter()
    for _ in range(calls):
        operation()
    _finish()
    return time.perf_counter() - begin


def _finish() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the reply
    replies.write(json.dumps(_measured()))
    replies.flush()
