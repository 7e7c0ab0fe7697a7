"""Invented machines for the doctor: a healthy one and a sick one."""

from dataclasses import replace
from typing import Any

from jobs.node.calibration import Calibration
from jobs.node.checks import examine
from jobs.node.checks.machine import Disk, GpuState, Machine
from jobs.spec import to_json
from orchestrator.units import GIB, MIB

_GPU = GpuState(
    index=0, uuid="GPU-a", name="NVIDIA H200", total_bytes=140 * GIB, used_bytes=600 * MIB
)
_DISK = Disk(
    path="/nvme",
    file_system="xfs",
    free_bytes=900 * GIB,
    write_bytes_per_second=2.5e9,
    read_bytes_per_second=5.5e9,
)
HEALTHY = Machine(
    node="node-1",
    python="3.12.3",
    nvidia_device=True,
    driver="580.159",
    driver_cuda=(13, 0),
    gpus=(_GPU,),
    packages={
        "torch": "2.13.0",
        "transformers": "5.23.0",
        "ray": "2.60.0",
        "nvidia-ml-py": "13.0",
        "bitsandbytes": "0.50.2",
        "deepspeed": "0.19.8",
        "ninja": "1.13",
    },
    requirements=(
        "torch<2.14,>=2.11",
        "transformers<5.24,>=5.17",
        "ray[tune]<3,>=2.60",
        "nvidia-ml-py>=12",
    ),
    torch_cuda=(13, 0),
    bitsandbytes_cuda=("128", "130"),
    commands={"g++": "/usr/bin/g++", "gcc": "/usr/bin/gcc"},
    nvcc_cuda=(13, 1),
    headers=("Python.h", "libaio.h"),
    variables={"TORCH_CUDA_ARCH_LIST": "9.0;10.0+PTX"},
    host_total_bytes=512 * GIB,
    host_available_bytes=480 * GIB,
    shm_free_bytes=64 * GIB,
    disk=_DISK,
)
SICK = replace(
    HEALTHY,
    node="node-2",
    gpus=(
        replace(_GPU, used_bytes=12 * GIB, processes=(4242,), slowed=("hardware thermal limit",)),
        replace(_GPU, index=1, used_bytes=3 * GIB),
    ),
    packages={
        **HEALTHY.packages,
        "torch": "2.14.0",
        "transformers": "5.16.2",
        "nvidia-ml-py3": "7.352.0",
    },
    requirements=(*HEALTHY.requirements, "peft>=0.21"),
    torch_cuda=(13, 3),
    nvcc_cuda=(12, 8),
    commands={},
    headers=(),
    unheld_build_locks=("/root/.cache/torch_extensions/py312_cu130/cpu_adam/lock",),
    variables={"TORCH_CUDA_ARCH_LIST": "9.0 10.0a"},
    host_available_bytes=3 * GIB,
    shm_free_bytes=64 * MIB,
    disk=replace(_DISK, file_system="nfs4", write_bytes_per_second=1e8),
)


def report_of(machine: Machine) -> dict[str, Any]:
    """What ``jobs.node.checks.report`` returns on such a machine."""
    return {
        "node": machine.node,
        "versions": {name: machine.packages[name] for name in ("torch", "transformers")},
        "findings": [to_json(finding) for finding in examine(machine)],
    }


def calibration_of(index: int, bf16: float, **fields: Any) -> dict[str, Any]:
    """A GPU's calibration as plain values, in invented figures."""
    calibration = Calibration(
        device="GPU X",
        uuid=f"GPU-{index}",
        torch="2",
        flops_per_second={"fp32": 50e12, "tf32": 400e12, "bf16": bf16},
        copy_bytes_per_second=4e12,
        clock_mhz=1980,
        temperature_celsius=55,
        seconds=9.0,
    )
    return dict(to_json(replace(calibration, **fields)))
