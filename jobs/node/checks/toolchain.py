"""What builds kernels when they are first used: DeepSpeed's ops, torch.compile."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobs.node.checks.base import Check, Finding, ok, problem, warning
from jobs.node.checks.machine import Machine
from jobs.techniques import AXES

OFFLOAD_OPS = {op for variant in AXES["offload"].variants.values() for op in variant.builds}


def compilers(machine: Machine) -> Iterator[Finding]:
    """A C++ compiler, ninja and Python's headers."""
    missing = {
        "g++": "apt-get install g++" * ("g++" not in machine.commands),
        "gcc": "apt-get install gcc" * ("gcc" not in machine.commands),
        "ninja": "pip install ninja"
        * ("ninja" not in machine.commands and "ninja" not in machine.packages),
        "Python.h": "apt-get install python3-dev" * ("Python.h" not in machine.headers),
    }
    absent = [name for name, mend in missing.items() if mend]
    if absent:
        yield warning(
            f"{', '.join(absent)} not found: DeepSpeed's offload and torch.compile will be unsupported",
            "; ".join(mend for mend in missing.values() if mend),
        )
    else:
        yield ok("g++, gcc, ninja and Python's headers are here")


def nvcc(machine: Machine) -> Iterator[Finding]:
    """DeepSpeed builds its CUDA ops with nvcc, of the same major version as torch's CUDA."""
    if not machine.gpus or machine.torch_cuda is None or "deepspeed" not in machine.packages:
        return
    built, found = machine.torch_cuda, machine.nvcc_cuda
    wanted = f"{built[0]}.{built[1]}"
    if set(machine.prebuilt_ops) >= OFFLOAD_OPS:
        yield ok("DeepSpeed's offload ops were built when it was installed: nvcc is not needed")
    elif found is None:
        yield warning(
            "nvcc not found: DeepSpeed cannot build its ops, offload will be unsupported",
            f"install the CUDA toolkit {wanted} and set CUDA_HOME to it",
        )
    elif found[0] != built[0]:
        yield warning(
            f"nvcc is CUDA {found[0]}.{found[1]}, torch is built for {wanted}: DeepSpeed refuses to build its ops",
            f"install the CUDA toolkit {wanted} and set CUDA_HOME to it",
        )
    else:
        yield ok(f"nvcc {found[0]}.{found[1]} fits torch's CUDA {wanted}")


def libaio(machine: Machine) -> Iterator[Finding]:
    """NVMe offload is built against libaio."""
    if "deepspeed" not in machine.packages:
        return
    if "libaio.h" in machine.headers:
        yield ok("libaio's headers are here")
    else:
        yield warning(
            "libaio.h not found: NVMe offload will be unsupported", "apt-get install libaio-dev"
        )


def architectures(machine: Machine) -> Iterator[Finding]:
    """DeepSpeed parses TORCH_CUDA_ARCH_LIST as plain numbers; "10.0a" breaks its builder."""
    listed = machine.variables.get("TORCH_CUDA_ARCH_LIST", "")
    odd = [
        word
        for word in re.split(r"[;, ]+", listed)
        if word and not re.fullmatch(r"\d+\.\d+(\+PTX)?", word)
    ]
    if odd:
        yield warning(
            f"TORCH_CUDA_ARCH_LIST holds {', '.join(odd)}, which DeepSpeed's builder cannot parse;"
            " trials replace it by their GPU's own, other programs here do not",
            "set it to your GPU's capability alone, as in TORCH_CUDA_ARCH_LIST=9.0",
        )


def locks(machine: Machine) -> Iterator[Finding]:
    """A build that was killed leaves its lock, and the next one waits for it for ever."""
    for path in machine.build_locks:
        yield problem(
            f"a build holds, or left behind, the lock {path}: whoever needs that op waits for it",
            "remove it, unless a build is running now",
        )


CHECKS = (
    Check(name="compilers", judge=compilers),
    Check(name="nvcc", judge=nvcc),
    Check(name="libaio", judge=libaio),
    Check(name="architectures", judge=architectures),
    Check(name="build locks", judge=locks),
)
