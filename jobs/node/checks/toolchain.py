"""Checks of the software: package versions, and what builds kernels at their first use."""

import re
from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from jobs.node.checks.findings import Finding, dotted, ok, problem, warning
from jobs.node.checks.machine import Machine
from jobs.techniques import AXES

_SHOWN = ("torch", "transformers", "ray")


def versions(machine: Machine) -> Iterator[Finding]:
    """Every requirement of this program is installed, in a tested version."""
    if not machine.requirements:
        yield warning("the tested versions are not known here", "pip install -c constraints.txt .")
        return
    requirements = map(Requirement, machine.requirements)
    findings = [finding for item in requirements for finding in _findings_about(item, machine)]
    yield from findings
    if not findings:
        # All is well: name the packages that matter most, and count the rest.
        shown = [f"{name} {machine.packages[name]}" for name in _SHOWN if name in machine.packages]
        yield ok(
            f"Python {machine.python}, {', '.join(shown)}: {len(machine.requirements)} packages, "
            "all within the tested range"
        )


def _findings_about(requirement: Requirement, machine: Machine) -> Iterator[Finding]:
    if requirement.marker is not None and not requirement.marker.evaluate():
        return
    name = requirement.name
    version = machine.packages.get(canonicalize_name(name))
    fix = f"pip install '{requirement}', best with -c constraints.txt"
    if version is None:
        yield problem(f"{name} is not installed", fix)
    # A nightly or local build counts as the release it leads to: 2.13.0a0+cu130 is 2.13.0.
    elif not requirement.specifier.contains(Version(version).base_version):
        tested = requirement.specifier
        yield warning(f"{name} {version} is outside the tested range {tested}", fix)


def one_pynvml(machine: Machine) -> Iterator[Finding]:
    """Only NVIDIA's own package provides the module ``pynvml``."""
    for rival in ("nvidia-ml-py3", "pynvml"):
        version = machine.packages.get(rival)
        # From version 12 on, the package pynvml leaves the module to nvidia-ml-py.
        is_harmless = rival == "pynvml" and version and Version(version) >= Version("12")
        if version is not None and not is_harmless:
            yield problem(
                f"{rival} {version} and nvidia-ml-py overwrite each other: both install the module "
                "pynvml",
                f"pip uninstall {rival}, then pip install --force-reinstall nvidia-ml-py",
            )


def bitsandbytes(machine: Machine) -> Iterator[Finding]:
    """8-bit optimizers need a bitsandbytes library for torch's CUDA."""
    if "bitsandbytes" not in machine.packages or machine.torch_cuda is None:
        return
    major, minor = machine.torch_cuda
    # bitsandbytes writes CUDA 12.8 as 128.
    wanted = machine.variables.get("BNB_CUDA_VERSION") or f"{major}{minor}"
    if wanted in machine.bitsandbytes_cuda:
        yield ok(f"bitsandbytes has a library for CUDA {wanted[:-1]}.{wanted[-1]}")
    else:
        version = machine.packages["bitsandbytes"]
        available = ", ".join(machine.bitsandbytes_cuda) or "none"
        yield warning(
            f"bitsandbytes {version} has no library for CUDA {wanted} (it has {available}): its "
            "optimizers will be unsupported",
            "pip install -U bitsandbytes, or set BNB_CUDA_VERSION to one of those with the same "
            "major version",
        )


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
    "versions": versions,
    "pynvml": one_pynvml,
    "bitsandbytes": bitsandbytes,
    "compilers": compilers,
    "nvcc": nvcc,
    "libaio": libaio,
    "architectures": architectures,
    "build locks": locks,
}
