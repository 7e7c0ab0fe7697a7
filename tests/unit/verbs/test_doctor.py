"""The doctor: every check on machines that do not exist, its text to the letter, and this very machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from jobs.node import checks
from jobs.node.calibration import Calibration, Load, calibrate
from jobs.node.checks import CHECKS, examine
from jobs.node.checks.base import Severity
from jobs.node.checks.disk import Disk, probe
from jobs.node.checks.machine import VARIABLES, Gpu, Machine, ask_nvml, look
from jobs.node.checks.rates import judge
from jobs.spec import to_json
from orchestrator import doctor

GIB = 2**30
HEALTHY = Machine(
    node="node-1",
    python="3.12.3",
    nvidia_device=True,
    driver="580.159",
    driver_cuda=(13, 0),
    gpus=(
        Gpu(
            index=0, uuid="GPU-a", name="NVIDIA H200", total_bytes=140 * GIB, used_bytes=600 * 2**20
        ),
    ),
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
    disk=Disk(
        path="/nvme",
        file_system="xfs",
        free_bytes=900 * GIB,
        write_bytes_per_second=2.5e9,
        read_bytes_per_second=5.5e9,
    ),
)
SICK = replace(
    HEALTHY,
    node="node-2",
    gpus=(
        replace(
            HEALTHY.gpus[0],
            used_bytes=12 * GIB,
            processes=(4242,),
            slowed=("hardware thermal limit",),
        ),
        replace(HEALTHY.gpus[0], index=1, used_bytes=3 * GIB),
    ),
    packages=dict(HEALTHY.packages)
    | {"torch": "2.14.0", "transformers": "5.16.2", "nvidia-ml-py3": "7.352.0"},
    requirements=(*HEALTHY.requirements, "peft>=0.21"),
    torch_cuda=(13, 3),
    nvcc_cuda=(12, 8),
    commands={},
    headers=(),
    build_locks=("/root/.cache/torch_extensions/py312_cu130/cpu_adam/lock",),
    variables={"TORCH_CUDA_ARCH_LIST": "9.0 10.0a"},
    host_available_bytes=3 * GIB,
    shm_free_bytes=64 * 2**20,
    disk=replace(HEALTHY.disk, file_system="nfs4", write_bytes_per_second=1e8)
    if HEALTHY.disk
    else None,
)


def report_of(machine: Machine) -> dict[str, Any]:
    """``checks.report`` of a machine that does not exist."""
    versions = {name: machine.packages[name] for name in ("torch", "transformers")}
    return {
        "node": machine.node,
        "versions": versions,
        "findings": [
            {"check": f.check, "severity": f.severity, "message": f.message, "mend": f.mend}
            for f in examine(machine)
        ],
    }


def worst(check: str, **facts: Any) -> tuple[Severity, str]:
    """The severity and words of one check's only finding that is not ok, on a machine healthy but for ``facts``."""
    found = [
        f
        for f in examine(replace(HEALTHY, **facts))
        if f.check == check and f.severity is not Severity.OK
    ]
    assert len(found) == 1
    assert found[0].mend
    return found[0].severity, found[0].message


def test_a_healthy_machine_has_nothing_to_mend() -> None:
    findings = list(examine(HEALTHY))
    assert {finding.severity for finding in findings} == {Severity.OK}
    assert not any(finding.mend for finding in findings)


def test_the_text_is_what_it_was() -> None:
    reports = [report_of(HEALTHY), report_of(SICK)]
    reports.append({"node": "cluster", "versions": {}, "findings": doctor.disagreements(reports)})
    golden = Path(__file__).parents[2] / "golden" / "doctor.txt"
    assert doctor.render(reports) + "\n" == golden.read_text()


def test_every_check_can_find_something_wrong() -> None:
    dead = replace(SICK, nvml_error="Driver Not Loaded", gpus=())
    machines = (SICK, dead, replace(SICK, gpus=()), replace(SICK, torch_cuda=None))
    complaining = {
        f.check for machine in machines for f in examine(machine) if f.severity is not Severity.OK
    }
    assert complaining == {check.name for check in CHECKS}


@pytest.mark.parametrize(
    ("check", "facts", "severity", "words"),
    [
        ("driver", {"nvml_error": "Library Not Found", "nvidia_device": False}, "warning", "measure the CPU"),
        ("driver", {"nvml_error": "Driver Not Loaded"}, "problem", "NVML does not answer: Driver Not Loaded"),
        ("driver", {"nvml_error": "Driver/library version mismatch"}, "problem", "replaced while loaded"),
        ("gpus", {"gpus": ()}, "problem", "it has no GPU"),
        ("gpus", {"variables": {"CUDA_VISIBLE_DEVICES": "-1"}}, "problem", "hides every GPU"),
        ("gpus", {"variables": {"CUDA_VISIBLE_DEVICES": ""}}, "problem", "hides every GPU"),
        ("torch build", {"torch_cuda": None}, "problem", "CPU build beside an NVIDIA GPU"),
        ("torch build", {"driver_cuda": (12, 8)}, "problem", "built for CUDA 13.0, the driver runs CUDA up to 12.8"),
        ("pynvml", {"packages": {**HEALTHY.packages, "pynvml": "11.5.3"}}, "problem", "pynvml 11.5.3"),
        ("bitsandbytes", {"bitsandbytes_cuda": ("128",)}, "warning", "no library for CUDA 130 (it has 128)"),
        ("nvcc", {"nvcc_cuda": None}, "warning", "nvcc not found"),
        ("versions", {"requirements": ()}, "warning", "tested versions are not known"),
        ("disk", {"disk": Disk(path="/x", error="Permission denied")}, "problem", "Permission denied"),
        ("disk", {"disk": Disk(path="/dev/shm", file_system="tmpfs")}, "warning", "memory, not a disk"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(
    check: str, facts: dict[str, Any], severity: str, words: str
) -> None:
    found, message = worst(check, **facts)
    assert found == severity
    assert words in message


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
)
def test_no_false_alarm(facts: dict[str, Any]) -> None:
    assert not [f for f in examine(replace(HEALTHY, **facts)) if f.severity is not Severity.OK]


class FakeNvml:
    """The part of ``pynvml`` that the doctor asks, with one GPU held at its thermal limit."""

    NVMLError = type("NVMLError", (Exception,), {})
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 0x80
    nvmlClocksThrottleReasonHwThermalSlowdown = 0x40
    nvmlClocksThrottleReasonSwThermalSlowdown = 0x20

    def __init__(self, **failing: str) -> None:
        self.shut = 0
        for name, words in failing.items():
            setattr(self, name, self._fail(words))

    def _fail(self, words: str) -> Callable[..., Any]:
        def fail(*_: Any) -> Any:
            raise self.NVMLError(words)

        return fail

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None:
        self.shut += 1

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 13020

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=80 * GIB, used=GIB)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return 0x41

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return "GPU-fake"

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "Fake H100"

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        return [SimpleNamespace(pid=7)]


def test_nvml_is_asked_once_and_closed() -> None:
    nvml = FakeNvml()
    found = ask_nvml(nvml)
    assert found["driver_cuda"] == (13, 2)
    assert found["gpus"] == (
        Gpu(
            index=0,
            uuid="GPU-fake",
            name="Fake H100",
            total_bytes=80 * GIB,
            used_bytes=GIB,
            processes=(7,),
            slowed=("hardware thermal limit",),
        ),
    )
    assert nvml.shut == 1


def test_nvmls_own_words_are_kept() -> None:
    assert ask_nvml(FakeNvml(nvmlInit="Driver Not Loaded")) == {"nvml_error": "Driver Not Loaded"}
    lost = FakeNvml(nvmlDeviceGetHandleByIndex="GPU is lost")
    assert ask_nvml(lost) == {"nvml_error": "GPU is lost"}
    assert lost.shut == 1
    assert (
        ask_nvml(FakeNvml(nvmlDeviceGetCurrentClocksThrottleReasons="Not Supported"))["gpus"][
            0
        ].slowed
        == ()
    )


def test_a_disk_is_measured_and_left_clean(tmp_path: Path) -> None:
    found = probe(tmp_path, size=32 * 2**20)
    assert found.error == ""
    assert min(found.write_bytes_per_second, found.read_bytes_per_second, found.free_bytes) > 0
    assert not list(tmp_path.iterdir())
    assert probe(tmp_path / "absent").error == "No such file or directory"


def test_this_machine_is_described_without_torch(capsys: pytest.CaptureFixture[str]) -> None:
    code = "import sys; from jobs.node import checks; checks.report(); print(sorted({'torch', 'ray'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    here = look()
    assert here.packages["torch"]
    assert any(line.startswith("torch") for line in here.requirements)


def test_secrets_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "RAY_AUTH_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "hunter2-planted")
    assert "hunter2-planted" not in repr(look())
    assert not any("TOKEN" in name or "SECRET" in name or "KEY" in name for name in VARIABLES)


@pytest.mark.parametrize(
    ("machine", "status"), [(HEALTHY, 0), (replace(HEALTHY, shm_free_bytes=0), 0), (SICK, 1)]
)
def test_the_exit_status_is_one_only_for_problems(
    machine: Machine,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(checks, "look", lambda nvme: machine)
    assert doctor.main(["--json"]) == status
    (report,) = json.loads(capsys.readouterr().out)
    assert report["node"] == machine.node
    assert any(finding["severity"] == "problem" for finding in report["findings"]) is bool(status)


def calibration_of(index: int, bf16: float, **facts: Any) -> dict[str, Any]:
    """A GPU's calibration, in invented figures."""
    flops = {"fp32": 50e12, "tf32": 400e12, "bf16": bf16}
    one = Calibration(device="GPU X", uuid=f"GPU-{index}", torch="2", flops_per_second=flops, seconds=9.0,
                      copy_bytes_per_second=4e12, clock_mhz=1980, temperature_celsius=55)  # fmt: skip
    return dict(to_json(replace(one, **facts)))


def test_a_gpu_slower_than_its_like_is_found() -> None:
    well = [calibration_of(0, 790e12), calibration_of(1, 760e12)]
    assert [finding.severity for finding in judge(well)] == [Severity.OK] * 2
    found = list(
        judge(
            [*well, calibration_of(2, 700e12), calibration_of(3, 790e12, slowed=("power brake",))]
        )
    )
    assert [finding.severity for finding in found[2:]] == [Severity.WARNING] * 2
    assert found[2].message == (
        "GPU X GPU-2 is 11% slower than the fastest of its model at bf16;"
        " fp32 50, tf32 400, bf16 700 TFLOP/s, 4,000 GB/s copied, 1980 MHz at 55 °C"
    )
    assert "held down under load: power brake" in found[3].message
    other = [calibration_of(0, 790e12), calibration_of(4, 300e12, device="GPU Y")]
    assert [finding.severity for finding in judge(other)] == [Severity.OK] * 2


def test_the_processor_is_calibrated_where_there_is_no_gpu() -> None:
    found = calibrate(Load(matrix=64, copy_bytes=2**16, round_seconds=0.001))
    assert set(found.flops_per_second) == {"fp32", "bf16"}
    assert min(*found.flops_per_second.values(), found.copy_bytes_per_second, found.seconds) > 0
    assert found.device


def test_calibrations_are_written_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(checks, "look", lambda nvme: HEALTHY)
    measured = [calibration_of(0, 790e12), calibration_of(1, 600e12)]
    monkeypatch.setattr(checks, "_calibrations", lambda: measured)
    assert doctor.main(["--calibrate", str(tmp_path / "rates.yaml")]) == 0
    assert yaml.safe_load((tmp_path / "rates.yaml").read_text()) == measured
    assert "24% slower than the fastest of its model at bf16" in capsys.readouterr().out


def test_a_calibration_that_fails_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> list[dict[str, Any]]:
        raise RuntimeError("the calibration failed: CUDA error: device is lost")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(checks, "look", lambda nvme: HEALTHY)
    monkeypatch.setattr(checks, "_calibrations", fail)
    assert doctor.main(["--calibrate", str(tmp_path / "rates.yaml")]) == 1


def test_a_cluster_that_is_not_there_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--address", "127.0.0.1:1"]) == 1
    assert "nothing answers at 127.0.0.1:1" in capsys.readouterr().out


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, contextlib\nfrom orchestrator import doctor\n"
        "with contextlib.suppress(SystemExit): doctor.main(['--help'])\n"
        "print(sorted({'ray', 'torch', 'transformers', 'pyarrow', 'psutil', 'pynvml', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
