"""Package versions: inside the tested range, and none beside one that breaks it."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from jobs.node.checks.base import Check, Finding, ok, problem, warning
from jobs.node.checks.machine import Machine


def versions(machine: Machine) -> Iterator[Finding]:
    """Every requirement of this program is installed, in a version that it was tested with."""
    if not machine.requirements:
        yield warning("the tested versions are not known here", "pip install -c constraints.txt .")
        return
    found = [
        finding
        for line in machine.requirements
        for finding in _requirement(machine, Requirement(line))
    ]
    yield from found
    if not found:
        named = ("torch", "transformers", "ray")
        shown = ", ".join(
            f"{name} {machine.packages[name]}" for name in named if name in machine.packages
        )
        yield ok(
            f"Python {machine.python}, {shown}: {len(machine.requirements)} packages, all within the tested range"
        )


def _requirement(machine: Machine, wanted: Requirement) -> Iterator[Finding]:
    if wanted.marker is not None and not wanted.marker.evaluate():
        return
    version = machine.packages.get(canonicalize_name(wanted.name))
    mend = f"pip install '{wanted}', best with -c constraints.txt"
    if version is None:
        yield problem(f"{wanted.name} is not installed", mend)
    # Nightlies and local builds count as the release they lead to: 2.13.0a0+cu130 is 2.13.0.
    elif not wanted.specifier.contains(Version(version).base_version):
        yield warning(
            f"{wanted.name} {version} is outside the tested range {wanted.specifier}", mend
        )


def one_pynvml(machine: Machine) -> Iterator[Finding]:
    """Only NVIDIA's own package may provide the module ``pynvml``."""
    rivals = [
        name
        for name in ("nvidia-ml-py3", "pynvml")
        if _brings_module(name, machine.packages.get(name))
    ]
    for rival in rivals:
        yield problem(
            f"{rival} {machine.packages[rival]} and nvidia-ml-py overwrite each other: both install the module pynvml",
            f"pip uninstall {rival}, then pip install --force-reinstall nvidia-ml-py",
        )


def _brings_module(name: str, version: str | None) -> bool:
    """The package ``pynvml`` left the module to nvidia-ml-py from its version 12 on."""
    return version is not None and (name != "pynvml" or Version(version) < Version("12"))


def bitsandbytes(machine: Machine) -> Iterator[Finding]:
    """8-bit optimizers need a bitsandbytes library for torch's CUDA."""
    if "bitsandbytes" not in machine.packages or machine.torch_cuda is None:
        return
    major, minor = machine.torch_cuda
    wanted = machine.variables.get("BNB_CUDA_VERSION") or f"{major}{minor}"
    if wanted in machine.bitsandbytes_cuda:
        yield ok(f"bitsandbytes has a library for CUDA {wanted[:-1]}.{wanted[-1]}")
    else:
        listed = ", ".join(machine.bitsandbytes_cuda) or "none"
        yield warning(
            f"bitsandbytes {machine.packages['bitsandbytes']} has no library for CUDA {wanted} (it has {listed}):"
            " its optimizers will be unsupported",
            "pip install -U bitsandbytes, or set BNB_CUDA_VERSION to one that it has of the same major version",
        )


CHECKS = (
    Check(name="versions", judge=versions),
    Check(name="pynvml", judge=one_pynvml),
    Check(name="bitsandbytes", judge=bitsandbytes),
)
