"""Checks of package versions: within the tested range, and no package that breaks another."""

from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from jobs.node.checks.findings import Finding, ok, problem, warning
from jobs.node.checks.machine import Machine

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


CHECKS = {"versions": versions, "pynvml": one_pynvml, "bitsandbytes": bitsandbytes}
