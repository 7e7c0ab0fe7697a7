"""Every check of a node, on invented machines; the facts that NVML and this machine tell."""

from dataclasses import replace

import pytest
import torch

from jobs.node.calibration import Load, calibrate
from jobs.node.checks import CHECKS, examine
from jobs.node.checks.findings import Finding, Severity
from jobs.node.checks.machine import VARIABLES, Disk, Machine, ask_nvml, look, probe_disk
from jobs.node.checks.rates import judge
from orchestrator.units import GIB
from tests.support.commands import python
from tests.support.fake_nvml import FakeNvml
from tests.support.machines import HEALTHY, SICK, calibration_of


def complaints(machine: Machine) -> list[Finding]:
    return [finding for finding in examine(machine) if finding.severity is not Severity.OK]


def test_examine_healthy_machine_finds_nothing_to_fix():
    assert complaints(HEALTHY) == []
    assert not any(finding.fix for finding in examine(HEALTHY))
    assert all(finding.fix for finding in complaints(SICK))


def test_every_check_can_complain():
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
def test_check_says_what_is_wrong(check, facts, severity, words):
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
def test_checks_raise_no_false_alarm(facts):
    assert complaints(replace(HEALTHY, **facts)) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a CUDA device")
def test_calibrate_without_a_gpu_measures_the_cpu():
    load = Load(sizes=(64, 32), tokens=16, copy_bytes=2**16, round_seconds=0.001)
    calibration = calibrate(load)
    assert set(calibration.flops_per_second) == {"fp32", "bf16"}
    assert min(calibration.flops_per_second.values()) > 0
    assert calibration.copy_bytes_per_second > 0
    assert calibration.attention_flops_per_second > 0
    assert calibration.launches_per_second > 0
    for name, rates in calibration.flops_by_size.items():
        assert set(rates) == {64, 32}
        assert rates[64] == calibration.flops_per_second[name]
    assert calibration.device


def test_judge_warns_of_a_gpu_slower_than_others_of_its_model():
    rates = [calibration_of(0, 790e12), calibration_of(2, 700e12)]
    _, slow, other = judge([*rates, calibration_of(4, 300e12, device="GPU Y")])
    assert slow.severity is Severity.WARNING
    assert slow.message == (
        "GPU X GPU-2 is 11% slower than the fastest of its model at bf16;"
        " fp32 50, tf32 400, bf16 700 TFLOP/s, 4,000 GB/s copied, 1980 MHz at 55 °C"
    )
    assert other.severity is Severity.OK


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """A GPU with another process, held at its thermal limit."""
    fake = FakeNvml(monkeypatch, ["GPU-fake"])
    fake.total, fake.used, fake.processes, fake.throttled = 80 * GIB, GIB, [7], 0x41
    return fake


def test_ask_nvml_describes_driver_and_gpus_and_shuts_nvml_down(nvml):
    facts = ask_nvml(nvml)
    assert facts["driver_cuda"] == (13, 2)
    (gpu,) = facts["gpus"]
    assert (gpu.index, gpu.uuid, gpu.name) == (0, "GPU-fake", "Fake H100")
    assert (gpu.total_bytes, gpu.used_bytes, gpu.processes) == (80 * GIB, GIB, (7,))
    assert gpu.slowed == ("hardware thermal limit",)
    assert nvml.shutdowns == 1


@pytest.mark.parametrize(
    ("function", "shutdowns"), [("nvmlInit", 0), ("nvmlDeviceGetMemoryInfo", 1)]
)
def test_ask_nvml_keeps_nvmls_own_error(function, shutdowns, nvml):
    nvml.failing = {function: "GPU is lost"}
    assert ask_nvml(nvml) == {"nvml_error": "GPU is lost"}
    assert nvml.shutdowns == shutdowns


def test_report_imports_neither_torch_nor_ray():
    code = (
        "import sys; from jobs.node import checks; checks.report(); "
        "print(sorted({'torch', 'ray'} & set(sys.modules)))"
    )
    assert python("-c", code, check=True).stdout == "[]\n"


def test_look_reads_no_secret_variables(monkeypatch):
    for name in ("HF_TOKEN", "RAY_AUTH_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "hunter2-planted")
    assert "hunter2-planted" not in repr(look())
    assert not any("TOKEN" in name or "SECRET" in name or "KEY" in name for name in VARIABLES)


def test_probe_measures_a_folder_and_leaves_it_clean(tmp_path):
    disk = probe_disk(tmp_path, size=32 * 2**20)
    assert disk.error == ""
    assert min(disk.write_bytes_per_second, disk.read_bytes_per_second, disk.free_bytes) > 0
    assert list(tmp_path.iterdir()) == []


def test_probe_of_a_missing_folder_says_so(tmp_path):
    assert probe_disk(tmp_path / "absent").error == "No such file or directory"
