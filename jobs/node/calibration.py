"""A GPU's constants and rates under load: ``python -m jobs.node.calibration`` prints them."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from jobs import self_process
from jobs.node import environment, nvml
from jobs.node.processes import probe, process_variables
from jobs.spec import to_json

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    sizes: tuple[int, ...] = (8192, 2048, 512)  # rows and columns n; a product is 2 n³ operations
    tokens: int = 2048  # of each of 64 heads of attention, of 64 values
    copy_bytes: int = 2**30
    round_seconds: float = 0.2


BRIEF = Load(sizes=(8192,), round_seconds=0.02)
"""For screening GPUs before a sweep. It takes about a second once torch is imported."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """A GPU's constants, and its rates while it was busy; without a GPU, the CPU's rates."""

    device: str  # the GPU's or the CPU's model
    uuid: str = ""
    torch: str
    driver: str = ""
    total_bytes: int = 0
    context_bytes: int = 0  # what NVML sees of a bare CUDA context
    multiprocessors: int = 0
    threads_per_multiprocessor: int = 0
    capability: float = 0.0  # CUDA's compute capability, as 9.0
    flops_per_second: dict[str, float]  # precision -> rate of the largest square matrix product
    flops_by_size: dict[str, dict[int, float]] = field(default_factory=dict)
    """The same for each size n of n × n matrices."""
    attention_flops_per_second: float = 0.0  # of scaled_dot_product_attention, forward, in 16 bits
    launches_per_second: float = 0.0  # of a kernel without work
    copy_bytes_per_second: float  # bytes read and written by a copy within the device's memory
    clock_mhz: int = 0
    temperature_celsius: int = 0
    slowed: tuple[str, ...] = ()  # why the GPU was throttled at the end; empty if it was not
    seconds: float  # how long the calibration took


def calibrate_all() -> list[dict[str, Any]]:
    """Each visible GPU's (or the CPU's) ``Calibration`` as plain values, all at once. Raises
    RuntimeError if a measuring process fails."""
    devices = [nvml.visible_device(uuid) for uuid in nvml.visible_uuids()]
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    variables = [{**order, "CUDA_VISIBLE_DEVICES": device} for device in devices] or [{}]
    with ThreadPoolExecutor(len(variables)) as pool:
        return list(pool.map(_calibrated, variables))


def calibrate_briefly() -> dict[str, Any]:
    """The first visible GPU's, measured in about a second. RuntimeError: the GPU is unfit."""
    return _calibrated(process_variables(environment.cores()), "--brief")


def _calibrated(variables: Mapping[str, str], *options: str) -> dict[str, Any]:
    command = self_process.command("jobs.node.calibration", *options)
    # Five minutes are enough on a slow disk; a dead GPU may never answer.
    output = probe(command, 300.0, {**os.environ, **variables})
    return json.loads(output)


def calibrate(load: Load) -> Calibration:
    """Measure the first visible GPU, which should be idle; without a GPU, the CPU."""
    begin = time.perf_counter()
    uuid = next(iter(nvml.visible_uuids()), "")
    used_before = nvml.used_bytes(uuid) if uuid else 0
    import torch

    device = torch.device("cuda" if uuid else "cpu")
    constants: dict[str, Any] = {"device": environment.describe().get("cpu_model", "")}
    if uuid:
        constants = _constants(uuid, used_before)
    formats = _formats(constants.get("capability"))
    flops = {
        name: {size: _product_rate(device, name, size, load) for size in load.sizes}
        for name in formats
    }
    tiny = torch.zeros(1, device=device)
    # Arguments are computed in order: the readings come last, while the GPU is still warm.
    return Calibration(
        torch=torch.__version__,
        flops_per_second={name: rates[max(rates)] for name, rates in flops.items()},
        flops_by_size=flops,
        attention_flops_per_second=_attention_rate(device, formats[-1], load),
        launches_per_second=_per_second(lambda: tiny.add_(1.0), device, load),
        copy_bytes_per_second=_copy_rate(device, load),
        **constants,
        **(_readings(uuid) if uuid else {}),
        seconds=time.perf_counter() - begin,
    )


def _constants(uuid: str, used_before: int) -> dict[str, Any]:
    import torch

    torch.cuda.synchronize()
    properties = torch.cuda.get_device_properties("cuda")
    return {
        # The first CUDA call has created the context, and the GPU is idle.
        "context_bytes": nvml.used_bytes(uuid) - used_before,
        "multiprocessors": properties.multi_processor_count,
        "threads_per_multiprocessor": properties.max_threads_per_multi_processor,
        "capability": float(f"{properties.major}.{properties.minor}"),
    }


def _readings(uuid: str) -> dict[str, Any]:
    with nvml.session() as pynvml:
        # By UUID, because NVML's indices ignore CUDA_VISIBLE_DEVICES.
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        sensor = pynvml.NVML_TEMPERATURE_GPU
        return {
            "device": str(pynvml.nvmlDeviceGetName(handle)),
            "uuid": uuid,
            "driver": str(pynvml.nvmlSystemGetDriverVersion()),
            "total_bytes": int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
            "clock_mhz": int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
            "temperature_celsius": int(pynvml.nvmlDeviceGetTemperature(handle, sensor)),
            "slowed": nvml.slowed_by(pynvml, handle),
        }


def _formats(capability: float | None) -> tuple[str, ...]:
    """Number formats that the GPU has units for, the fastest last; None: a CPU."""
    if capability is None:
        return ("fp32", "bf16")
    # CUDA C++ Programming Guide, compute capabilities.
    return ("fp32", "fp16") if capability < 8.0 else ("fp32", "tf32", "fp16", "bf16")


def _dtype(precision: str) -> torch.dtype:
    import torch

    return {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32)


def _product_rate(device: torch.device, precision: str, size: int, load: Load) -> float:
    """Operations per second of an n × n matrix product."""
    import torch

    dtype = _dtype(precision)
    # "high" lets cuBLAS round the factors to TF32, "highest" does not.
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    shape = (size, size)
    # Random values: for zeros or ones a GPU draws less power than in training, and clocks higher.
    left = torch.randn(shape, dtype=dtype, device=device)
    right = torch.randn(shape, dtype=dtype, device=device)
    product = torch.empty(shape, dtype=dtype, device=device)
    # n² results of n multiplications and n additions each.
    rate = _per_second(lambda: torch.mm(left, right, out=product), device, load)
    return 2 * size**3 * rate


def _attention_rate(device: torch.device, precision: str, load: Load) -> float:
    """Operations per second of attention, forward: a product for the scores, one for the sums."""
    import torch

    batch, heads, width = 4, 16, 64
    shape = (batch, heads, load.tokens, width)
    query, key, value = (torch.randn(shape, dtype=_dtype(precision), device=device) for _ in "qkv")
    attend = torch.nn.functional.scaled_dot_product_attention
    rate = _per_second(lambda: attend(query, key, value), device, load)
    return 2 * 2 * batch * heads * load.tokens**2 * width * rate


def _copy_rate(device: torch.device, load: Load) -> float:
    """Bytes per second that a copy within the device reads and writes."""
    import torch

    source = torch.ones(load.copy_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * load.copy_bytes * _per_second(lambda: target.copy_(source), device, load)


def _per_second(work: Callable[[], object], device: torch.device, load: Load) -> float:
    """Calls of ``work`` per second, the median of five rounds."""
    _seconds(work, 1, device)  # the first call loads the kernel
    calls = max(1, round(load.round_seconds / _seconds(work, 1, device)))
    return calls / statistics.median(_seconds(work, calls, device) for _ in range(5))


def _seconds(work: Callable[[], object], calls: int, device: torch.device) -> float:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


if __name__ == "__main__":
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the reply
    work = BRIEF if "--brief" in sys.argv else Load()
    if not nvml.visible_uuids():
        # A CPU is slower.
        sizes = (1024,) if work is BRIEF else (1024, 256)
        work = replace(work, sizes=sizes, tokens=256, copy_bytes=2**26)
    replies.write(json.dumps(to_json(calibrate(work))) + "\n")
    replies.flush()
