"""What a GPU does when nothing else holds it back; ``python -m jobs.node.calibration`` prints one's figures as JSON."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jobs.isolation import preload
from jobs.node import environment, nvml
from jobs.node.checks.machine import slowed_by
from jobs.spec import to_json

if TYPE_CHECKING:
    import torch

ROUNDS = 5
"""The median of so many is reported."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """How much work a round is: long enough to be timed, short enough for all to take seconds."""

    matrix: int = 8192
    """Rows and columns; a product is 2 n³ operations."""
    copy_bytes: int = 2**30
    round_seconds: float = 0.2


BRIEF = Load(round_seconds=0.02)
"""Before a sweep: about a second, after torch has been imported."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """One GPU's constants and rates, taken while it was busy; without a GPU the processor's rates alone."""

    device: str
    """The GPU's or the processor's model."""
    uuid: str = ""
    torch: str
    driver: str = ""
    total_bytes: int = 0
    context_bytes: int = 0
    """What NVML sees when torch has created a bare context."""
    multiprocessors: int = 0
    threads_per_multiprocessor: int = 0
    flops_per_second: dict[str, float]
    """Precision -> rate of a large square matrix product."""
    copy_bytes_per_second: float
    """Bytes read and written by a copy within the device's memory."""
    clock_mhz: int = 0
    temperature_celsius: int = 0
    slowed: tuple[str, ...] = ()
    """Why the clocks were held down at the end, if they were."""
    seconds: float


def calibrate_all() -> list[dict[str, Any]]:
    """Every visible GPU's ``Calibration`` as plain values, all at once as in a sweep, each in a process of its own.

    Without a GPU, the processor's. Raises RuntimeError with a process's last words where it fails.
    """
    found = nvml.visible_uuids()
    own = [
        {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": nvml.visible_device(uuid)}
        for uuid in found
    ]
    command = [sys.executable, "-m", "jobs.node.calibration"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [
        subprocess.Popen(command, env={**os.environ, **variables}, **pipes)
        for variables in own or [{}]
    ]
    calibrations = []
    for process in processes:
        answer, complaint = process.communicate()
        if process.returncode:
            raise RuntimeError(f"the calibration failed: {complaint.strip().splitlines()[-1]}")
        calibrations.append(json.loads(answer))
    return calibrations


def calibrate_briefly() -> dict[str, Any]:
    """The first visible GPU's ``Calibration`` as plain values, in a second, in a process of its own.

    Raises RuntimeError with the process's last words where it fails: then the GPU is not fit to be measured on.
    """
    variables = preload.environment(environment.cores())
    command = [sys.executable, "-m", "jobs.node.calibration", "--brief"]
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(
            (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def calibrate(load: Load) -> Calibration:
    """Measure the first visible GPU, or the processor where there is none. The GPU should be idle."""
    begin = time.perf_counter()
    uuids = nvml.visible_uuids()
    before = nvml.used_bytes(uuids[0]) if uuids else 0
    import torch

    device = torch.device("cuda" if uuids else "cpu")
    facts: dict[str, Any] = {"device": environment.describe().get("cpu_model", "")}
    if uuids:
        torch.cuda.synchronize()
        properties = torch.cuda.get_device_properties(device)
        facts = {
            "context_bytes": nvml.used_bytes(uuids[0]) - before,
            "multiprocessors": properties.multi_processor_count,
            "threads_per_multiprocessor": properties.max_threads_per_multi_processor,
        }
    flops = {
        name: _product_rate(device, name, load)
        for name in (("fp32", "tf32", "bf16") if uuids else ("fp32", "bf16"))
    }
    copied = _copy_rate(device, load)
    if uuids:
        facts |= _from_nvml(uuids[0])
    return Calibration(
        torch=torch.__version__,
        flops_per_second=flops,
        copy_bytes_per_second=copied,
        seconds=time.perf_counter() - begin,
        **facts,
    )


def _from_nvml(uuid: str) -> dict[str, Any]:
    """Read at the end, while the GPU is still warm and its clocks still up."""
    with nvml.session() as pynvml:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        return {
            "device": str(pynvml.nvmlDeviceGetName(handle)),
            "uuid": uuid,
            "driver": str(pynvml.nvmlSystemGetDriverVersion()),
            "total_bytes": int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
            "clock_mhz": int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
            "temperature_celsius": int(
                pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
            ),
            "slowed": slowed_by(pynvml, handle),
        }


def _product_rate(device: torch.device, precision: str, load: Load) -> float:
    """Operations per second of an n × n matrix product."""
    import torch

    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    with _float32_products(precision == "tf32"):
        # Not zeros or ones: a GPU draws less power for them, and clocks higher than it would in training.
        left, right, product = (
            torch.randn(load.matrix, load.matrix, dtype=dtype, device=device) for _ in range(3)
        )
        return (
            2
            * load.matrix**3
            * _per_second(lambda: torch.mm(left, right, out=product), device, load)
        )


def _copy_rate(device: torch.device, load: Load) -> float:
    import torch

    source = torch.ones(load.copy_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * load.copy_bytes * _per_second(lambda: target.copy_(source), device, load)


def _per_second(work: Callable[[], object], device: torch.device, load: Load) -> float:
    """Calls per second: the median over rounds that begin and end with an idle device."""
    import torch

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    def seconds(calls: int) -> float:
        wait()
        begin = time.perf_counter()
        for _ in range(calls):
            work()
        wait()
        return time.perf_counter() - begin

    seconds(1)  # loads the kernel
    calls = max(1, round(load.round_seconds / seconds(1)))
    return calls / statistics.median(seconds(calls) for _ in range(ROUNDS))


@contextmanager
def _float32_products(tf32: bool) -> Iterator[None]:
    import torch

    earlier = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(earlier)


if __name__ == "__main__":
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not the answer
    load = BRIEF if "--brief" in sys.argv else Load()
    load = load if nvml.visible_uuids() else replace(load, matrix=1024, copy_bytes=2**26)
    replies.write(json.dumps(to_json(calibrate(load))) + "\n")
    replies.flush()
    sys.exit(0)
