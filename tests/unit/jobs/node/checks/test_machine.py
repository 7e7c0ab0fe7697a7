"""The facts about a machine: from NVML, and of the machine that runs these tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jobs.node.checks.machine import VARIABLES, Gpu, ask_nvml, look, probe_disk
from tests.support.fake_nvml import FakeNvml

GIB = 2**30


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """A GPU with another process, held at its thermal limit."""
    fake = FakeNvml(monkeypatch, ["GPU-fake"])
    fake.total, fake.used, fake.processes, fake.throttled = 80 * GIB, GIB, [7], 0x41
    return fake


def test_ask_nvml_describes_driver_and_gpus_and_shuts_nvml_down(nvml: FakeNvml) -> None:
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
    ("function", "shutdowns"), [("nvmlInit", 0), ("nvmlDeviceGetMemoryInfo", 1)]
)
def test_ask_nvml_keeps_an_error_in_nvmls_words(
    function: str, shutdowns: int, nvml: FakeNvml
) -> None:
    nvml.failing = {function: "GPU is lost"}
    assert ask_nvml(nvml) == {"nvml_error": "GPU is lost"}
    assert nvml.shutdowns == shutdowns


def test_report_imports_neither_torch_nor_ray() -> None:
    code = (
        "import sys; from jobs.node import checks; checks.report(); "
        "print(sorted({'torch', 'ray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_look_reads_no_secret_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "RAY_AUTH_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "hunter2-planted")
    assert "hunter2-planted" not in repr(look())
    assert not any("TOKEN" in name or "SECRET" in name or "KEY" in name for name in VARIABLES)


def test_probe_measures_a_folder_and_leaves_it_clean(tmp_path: Path) -> None:
    disk = probe_disk(tmp_path, size=32 * 2**20)
    assert disk.error == ""
    assert min(disk.write_bytes_per_second, disk.read_bytes_per_second, disk.free_bytes) > 0
    assert list(tmp_path.iterdir()) == []


def test_probe_of_a_missing_folder_says_so(tmp_path: Path) -> None:
    assert probe_disk(tmp_path / "absent").error == "No such file or directory"
