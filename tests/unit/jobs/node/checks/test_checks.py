"""Every check of a node, on invented machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobs.node.checks import CHECKS, examine
from jobs.node.checks.findings import Finding, Severity
from jobs.node.checks.machine import Disk, Machine
from tests.support.machines import HEALTHY, SICK


def complaints(machine: Machine) -> list[Finding]:
    return [finding for finding in examine(machine) if finding.severity is not Severity.OK]


def test_examine_healthy_machine_finds_nothing_to_fix() -> None:
    assert complaints(HEALTHY) == []
    assert not any(finding.fix for finding in examine(HEALTHY))
    assert all(finding.fix for finding in complaints(SICK))


def test_every_check_can_complain() -> None:
    without_nvml = replace(SICK, nvml_error="Driver Not Loaded", gpus=())
    machines = (SICK, without_nvml, replace(SICK, gpus=()), replace(SICK, torch_cuda=None))
    complaining = {finding.check for machine in machines for finding in complaints(machine)}
    assert complaining == set(CHECKS)


@pytest.mark.parametrize(
    ("check", "facts", "severity", "words"),
    [
        ("driver", {"nvml_error": "x", "nvidia_device": False}, "warning", "measure the CPU"),
        ("driver", {"nvml_error": "Not Loaded"}, "problem", "NVML does not answer: Not Loaded"),
        ("driver", {"nvml_error": "library version mismatch"}, "problem", "replaced while loaded"),
        ("gpus", {"gpus": ()}, "problem", "it has no GPU"),
        ("gpus", {"variables": {"CUDA_VISIBLE_DEVICES": "-1"}}, "problem", "hides every GPU"),
        ("gpus", {"variables": {"CUDA_VISIBLE_DEVICES": ""}}, "problem", "hides every GPU"),
        ("torch build", {"torch_cuda": None}, "problem", "CPU build beside an NVIDIA GPU"),
        ("torch build", {"driver_cuda": (12, 8)}, "problem", "driver runs CUDA up to 12.8"),
        ("pynvml", {"packages": {**HEALTHY.packages, "pynvml": "11.5"}}, "problem", "pynvml 11.5"),
        ("bitsandbytes", {"bitsandbytes_cuda": ("128",)}, "warning", "CUDA 130 (it has 128)"),
        ("nvcc", {"nvcc_cuda": None}, "warning", "nvcc not found"),
        ("versions", {"requirements": ()}, "warning", "tested versions are not known"),
        ("disk", {"disk": Disk(path="/x", error="not allowed")}, "problem", "not allowed"),
        ("disk", {"disk": Disk(path="/x", file_system="tmpfs")}, "warning", "memory, not a disk"),
    ],
)
def test_check_complains_about_what_is_wrong(
    check: str, facts: dict[str, Any], severity: str, words: str
) -> None:
    (finding,) = (f for f in complaints(replace(HEALTHY, **facts)) if f.check == check)
    assert finding.severity == severity
    assert words in finding.message
    assert finding.fix


@pytest.mark.parametrize(
    "facts",
    [
        {"packages": {**HEALTHY.packages, "pynvml": "13.0.1"}},
        {"packages": {**HEALTHY.packages, "torch": "2.13.0a0+cu130.nv26.10"}},
        {"variables": {"CUDA_VISIBLE_DEVICES": "1,0"}},
        {"driver_cuda": (13, 0), "torch_cuda": (13, 2), "bitsandbytes_cuda": ("132",)},
        {"nvcc_cuda": None, "prebuilt_ops": ("async_io", "cpu_adam")},
        {"bitsandbytes_cuda": ("128",), "variables": {"BNB_CUDA_VERSION": "128"}},
    ],
    ids=["new_pynvml", "nightly_torch", "gpus_chosen", "newer_minor", "prebuilt_ops", "bnb_chosen"],
)
def test_checks_raise_no_false_alarm(facts: dict[str, Any]) -> None:
    assert complaints(replace(HEALTHY, **facts)) == []
