"""The facts about a machine: from NVML, and of the machine that runs these tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.node.checks.machine import VARIABLES, Gpu, ask_nvml, look

GIB = 2**30


class FakeNvml:
    """As much of ``pynvml`` as the doctor asks, with one GPU held at its thermal limit."""

    NVMLError = type("NVMLError", (Exception,), {})
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 0x80
    nvmlClocksThrottleReasonHwThermalSlowdown = 0x40
    nvmlClocksThrottleReasonSwThermalSlowdown = 0x20

    def __init__(self, **failing: str) -> None:
        """``failing``: function -> the error that it raises."""
        self.shutdowns = 0
        for name, message in failing.items():
            setattr(self, name, self._fail(message))

    def _fail(self, message: str) -> Callable[..., Any]:
        def fail(*_: Any) -> Any:
            raise self.NVMLError(message)

        return fail

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None:
        self.shutdowns += 1

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


def test_ask_nvml_describes_driver_and_gpus_and_shuts_nvml_down() -> None:
    nvml = FakeNvml()
    facts = ask_nvml(nvml)
    assert facts["driver_cuda"] == (13, 2)
    assert facts["gpus"] == (
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
    assert nvml.shutdowns == 1


@pytest.mark.parametrize(
    ("function", "shutdowns"), [("nvmlInit", 0), ("nvmlDeviceGetHandleByIndex", 1)]
)
def test_ask_nvml_keeps_an_error_in_nvmls_words(function: str, shutdowns: int) -> None:
    nvml = FakeNvml(**{function: "GPU is lost"})
    assert ask_nvml(nvml) == {"nvml_error": "GPU is lost"}
    assert nvml.shutdowns == shutdowns


def test_ask_nvml_without_throttle_reasons_reports_none() -> None:
    nvml = FakeNvml(nvmlDeviceGetCurrentClocksThrottleReasons="Not Supported")
    assert ask_nvml(nvml)["gpus"][0].slowed == ()


def test_report_imports_neither_torch_nor_ray() -> None:
    code = (
        "import sys; from jobs.node import checks; checks.report(); "
        "print(sorted({'torch', 'ray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_look_finds_the_installed_packages_and_requirements() -> None:
    machine = look()
    assert machine.packages["torch"]
    assert any(line.startswith("torch") for line in machine.requirements)


def test_look_reads_no_secret_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "RAY_AUTH_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "hunter2-planted")
    assert "hunter2-planted" not in repr(look())
    assert not any("TOKEN" in name or "SECRET" in name or "KEY" in name for name in VARIABLES)
