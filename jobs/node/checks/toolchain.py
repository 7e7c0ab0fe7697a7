"""Checks of what builds kernels at their first use: DeepSpeed's ops and torch.compile."""

import re
from collections.abc import Iterator

from jobs.node.checks.findings import Finding, dotted, ok, problem, warning
from jobs.node.checks.machine import Machine
from jobs.techniques import AXES


def compilers(machine: Machine) -> Iterator[Finding]:
    """A C++ compiler, ninja and Python's headers are here."""
    # What is needed -> how to install it on Debian.
    needed = {
        "g++": "apt-get install g++",
        "gcc": "apt-get install gcc",
        "ninja": "pip install ninja",
        "Python.h": "apt-get install python3-dev",
    }
    here = {*machine.commands, *machine.packages, *machine.headers}
    missing = {name: fix for name, fix in needed.items() if name not in here}
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
    offload_ops = {op for variant in AXES["offload"].variants.values() for op in variant.builds}
    if offload_ops.issubset(machine.prebuilt_ops):
        yield ok("DeepSpeed's offload ops were built when it was installed: nvcc is not needed")
    else:
        yield _nvcc_finding(machine.nvcc_cuda, machine.torch_cuda)


def _nvcc_finding(installed: tuple[int, int] | None, wanted: tuple[int, int]) -> Finding:
    torch_cuda = dotted(wanted)
    fix = f"install the CUDA toolkit {torch_cuda} and set CUDA_HOME to it"
    if installed is None:
        missing = "nvcc not found: DeepSpeed cannot build its ops, offload will be unsupported"
        return warning(missing, fix)
    # DeepSpeed's builder compares the major versions (op_builder/builder.py).
    if installed[0] != wanted[0]:
        return warning(
            f"nvcc is CUDA {dotted(installed)}, torch is built for {torch_cuda}: DeepSpeed "
            "refuses to build its ops",
            fix,
        )
    return ok(f"nvcc {dotted(installed)} fits torch's CUDA {torch_cuda}")


def libaio(machine: Machine) -> Iterator[Finding]:
    """NVMe offload is built against libaio."""
    if "deepspeed" not in machine.packages:
        return
    if "libaio.h" in machine.headers:
        yield ok("libaio's headers are here")
    else:
        missing = "libaio.h not found: NVMe offload will be unsupported"
        yield warning(missing, "apt-get install libaio-dev")


def architectures(machine: Machine) -> Iterator[Finding]:
    """DeepSpeed parses TORCH_CUDA_ARCH_LIST as plain numbers; "10.0a" breaks its builder."""
    listed = machine.variables.get("TORCH_CUDA_ARCH_LIST", "")
    words = [word for word in re.split(r"[;, ]+", listed) if word]
    invalid = [word for word in words if not re.fullmatch(r"\d+\.\d+(\+PTX)?", word)]
    if invalid:
        yield warning(
            f"TORCH_CUDA_ARCH_LIST holds {', '.join(invalid)}, which DeepSpeed's builder cannot "
            "parse; trials set it to their GPU's capability, but other programs use it as it is",
            "set it to your GPU's capability alone, as in TORCH_CUDA_ARCH_LIST=9.0",
        )


def locks(machine: Machine) -> Iterator[Finding]:
    """A build that was killed leaves its lock, and later builds wait for it for ever."""
    for path in machine.unheld_build_locks:
        yield problem(
            f"no process here holds the lock {path}, so trials that need that op wait for it",
            "remove it, unless a build is running on another machine that shares the folder",
        )


CHECKS = {
    "compilers": compilers,
    "nvcc": nvcc,
    "libaio": libaio,
    "architectures": architectures,
    "build locks": locks,
}
