"""Checks of what builds kernels at their first use: DeepSpeed's ops and torch.compile."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobs.node.checks.base import Check, Finding, ok, problem, warning
from jobs.node.checks.machine import Machine
from jobs.techniques import AXES

OFFLOAD_OPS = {op for variant in AXES["offload"].variants.values() for op in variant.builds}
"""The DeepSpeed ops that the offload axis needs."""


def compilers(machine: Machine) -> Iterator[Finding]:
    """A C++ compiler, ninja and Python's headers are here."""
    missing: dict[str, str] = {}
    if "g++" not in machine.commands:
        missing["g++"] = "apt-get install g++"
    if "gcc" not in machine.commands:
        missing["gcc"] = "apt-get install gcc"
    if "ninja" not in machine.commands and "ninja" not in machine.packages:
        missing["ninja"] = "pip install ninja"
    if "Python.h" not in machine.headers:
        missing["Python.h"] = "apt-get install python3-dev"
    if missing:
        yield warning(
            f"{', '.join(missing)} not found: DeepSpeed's offload and torch.compile will be "
            "unsupported",
            "; ".join(missing.values()),
        )
    else:
        yield ok("g++, gcc, ninja and Python's headers are here")


def nvcc(machine: Machine) -> Iterator[Finding]:
    """DeepSpeed builds its CUDA ops with an nvcc of the same major version as torch's CUDA."""
    if not machine.gpus or machine.torch_cuda is None or "deepspeed" not in machine.packages:
        return
    major, minor = machine.torch_cuda
    wanted = f"{major}.{minor}"
    installed = machine.nvcc_cuda
    fix = f"install the CUDA toolkit {wanted} and set CUDA_HOME to it"
    if OFFLOAD_OPS.issubset(machine.prebuilt_ops):
        yield ok("DeepSpeed's offload ops were built when it was installed: nvcc is not needed")
    elif installed is None:
        yield warning(
            "nvcc not found: DeepSpeed cannot build its ops, offload will be unsupported", fix
        )
    elif installed[0] != major:
        yield warning(
            f"nvcc is CUDA {installed[0]}.{installed[1]}, torch is built for {wanted}: DeepSpeed "
            "refuses to build its ops",
            fix,
        )
    else:
        yield ok(f"nvcc {installed[0]}.{installed[1]} fits torch's CUDA {wanted}")


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
    words = [word for word in re.split(r"[;, ]+", listed) if word]
    invalid = [word for word in words if not re.fullmatch(r"\d+\.\d+(\+PTX)?", word)]
    if invalid:
        yield warning(
            f"TORCH_CUDA_ARCH_LIST holds {', '.join(invalid)}, which DeepSpeed's builder cannot "
            "parse; trials replace it by their GPU's own, other programs here do not",
            "set it to your GPU's capability alone, as in TORCH_CUDA_ARCH_LIST=9.0",
        )


def locks(machine: Machine) -> Iterator[Finding]:
    """A build that was killed leaves its lock, and later builds wait for it forever."""
    for path in machine.build_locks:
        yield problem(
            f"a build holds, or left behind, the lock {path}: trials that need that op wait for it",
            "remove it, unless a build is running now",
        )


CHECKS = (
    Check(name="compilers", judge=compilers),
    Check(name="nvcc", judge=nvcc),
    Check(name="libaio", judge=libaio),
    Check(name="architectures", judge=architectures),
    Check(name="build locks", judge=locks),
)
