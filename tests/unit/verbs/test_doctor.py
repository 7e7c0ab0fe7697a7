"""The doctor: its text to the letter, its exit status, and the calibrations that it writes."""

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from jobs.node import calibration, checks, collectives, nvml
from jobs.node.checks.machine import Machine
from jobs.spec import to_json
from orchestrator import doctor
from orchestrator.running.examination import version_findings
from tests.support.golden import assert_golden
from tests.support.machines import HEALTHY, SICK, calibration_of, report_of


@pytest.fixture(autouse=True)
def without_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def examine_instead(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the doctor see this machine."""
    monkeypatch.setattr(checks, "look", lambda nvme: machine)


def test_render_is_the_golden_text():
    reports = [report_of(HEALTHY), report_of(SICK)]
    cluster = {
        "node": "cluster",
        "versions": {},
        "findings": [to_json(found.of("cluster")) for found in version_findings(reports)],
    }
    assert_golden("doctor.txt", doctor.render([*reports, cluster]))


def test_version_findings_of_equal_nodes_are_ok():
    (finding,) = version_findings([report_of(HEALTHY), report_of(HEALTHY)])
    assert (finding.severity, finding.message) == ("ok", "2 nodes with equal versions")


@pytest.mark.parametrize(
    ("machine", "status"),
    [(HEALTHY, 0), (replace(HEALTHY, shm_free_bytes=0), 0), (SICK, 1)],
    ids=["healthy", "warnings", "problems"],
)
def test_doctor_fails_only_for_problems(machine, status, monkeypatch, capsys):
    examine_instead(machine, monkeypatch)
    assert doctor.main(["--json"]) == status
    (report,) = json.loads(capsys.readouterr().out)
    assert report["node"] == machine.node
    has_problem = any(finding["severity"] == "problem" for finding in report["findings"])
    assert has_problem is bool(status)


def test_doctor_writes_and_compares_calibrations(tmp_path, monkeypatch, capsys):
    examine_instead(HEALTHY, monkeypatch)
    calibrations = [calibration_of(0, 790e12), calibration_of(1, 600e12)]
    monkeypatch.setattr(calibration, "calibrate_all", lambda: calibrations)
    file = tmp_path / "rates.yaml"
    assert doctor.main(["--calibrate", str(file)]) == 0
    assert yaml.safe_load(file.read_text()) == calibrations
    assert "24% slower than the fastest of its model at bf16" in capsys.readouterr().out


def test_doctor_reports_a_failed_calibration_as_a_problem(tmp_path, monkeypatch, capsys):
    def fail() -> list[dict[str, Any]]:
        raise RuntimeError("CUDA error: device is lost")

    examine_instead(HEALTHY, monkeypatch)
    monkeypatch.setattr(calibration, "calibrate_all", fail)
    assert doctor.main(["--calibrate", str(tmp_path / "rates.yaml")]) == 1
    assert "device is lost" in capsys.readouterr().out


def test_doctor_measures_the_links_of_several_gpus(monkeypatch, capsys):
    examine_instead(replace(HEALTHY, gpus=HEALTHY.gpus * 2, link="NVLink"), monkeypatch)
    monkeypatch.setattr(nvml, "visible_uuids", lambda: ["GPU-a", "GPU-b"])
    figures = [
        {"operation": "all-reduce", "bytes": 2**20 * size, "seconds": size * 1e-5}
        for size in (1, 32)
    ]
    for own in figures:
        own["bus_bytes_per_second"] = own["bytes"] / own["seconds"]
    monkeypatch.setattr(collectives, "measure", lambda world_size: figures)
    assert doctor.main([]) == 0
    assert "2 GPUs, linked by NVLink" in (said := capsys.readouterr().out)
    assert "all-reduce" not in said
    assert doctor.main(["--links"]) == 0
    times = "all-reduce: 1 MiB in 0.01 ms, 32 MiB in 0.32 ms (105 GB/s from each GPU)"
    assert times in capsys.readouterr().out

    def fail(world_size: int) -> list[dict[str, Any]]:
        raise RuntimeError("unhandled system error")

    monkeypatch.setattr(collectives, "measure", fail)
    assert doctor.main(["--links"]) == 1
    assert "the GPUs exchange nothing: unhandled system error" in capsys.readouterr().out


def test_doctor_reports_an_absent_cluster_as_a_problem(capsys):
    assert doctor.main(["--address", "127.0.0.1:1"]) == 1
    assert "nothing answers at 127.0.0.1:1" in capsys.readouterr().out


def test_calibration_over_a_file_of_the_users_is_refused_at_once(tmp_path, capsys):
    file = tmp_path / "rates.yaml"
    file.write_text("mine")
    assert doctor.main(["--calibrate", str(file)]) == 2
    assert "already exists; nothing was written" in capsys.readouterr().err
    assert file.read_text() == "mine"
