"""Sweeps over two GPUs of one host: unlike models, a killed slot, another process, a slow GPU."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import pytest
import yaml
from ray.cluster_utils import Cluster as RayNodes

from jobs.flags import SHARED, has_any
from jobs.node import environment, nvml
from jobs.record import Outcome, TrialRecord
from orchestrator.analysis.dataset import load_dataset
from orchestrator.storage.run_folder import RunFolder
from tests.gpu.shared import BERT_LARGE, ROOT, UUIDS, gpu_marks, run_here

SWEEP_SECONDS = 240.0
PLAYED_GIB = 24

CONFIG = {
    "model": BERT_LARGE,
    "data": {"synthetic": {"sequence_length": 512, "samples": 1024}},
    "axes": {
        "micro_batch": [4, 16, 64],
        "precision": ["bf16"],
        "activations": ["keep", "checkpoint"],
    },
    "measure": {"warmup_steps": 2, "steps": 4, "relative_error": 0},
    "follow_up": {"tie_break_rounds": 0, "profile": "none"},
    "resources": {"screen_gpus": False},
}
TRIALS = 6
TOO_LARGE = (64, "keep")
"""39 GiB of an H200."""

SCREEN = """\
import json
from orchestrator.planning.keys.config_model import Resources
from orchestrator.running.gpu_screening import screened_cluster
with screened_cluster(None, Resources()) as screening:
    print(json.dumps({"slots": screening.cluster.slots, **screening.to_json()}))
"""

pytestmark = gpu_marks(timeout_seconds=600, gpus=2)


def with_gpus(*uuids: str, **variables: str) -> dict[str, str]:
    """The environment of a process that sees these GPUs alone, in this order."""
    seen = ",".join(nvml.visible_device(uuid) for uuid in uuids)
    return {
        **os.environ,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": seen,
        **variables,
    }


@contextmanager
def other_process(uuid: str, *arguments: str) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.gpu.hog", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=ROOT, env=with_gpus(uuid), stdin=pipe, stdout=pipe, text=True
    ) as hog:
        assert hog.stdout is not None
        assert hog.stdout.readline() == "ready\n"
        yield
        hog.kill()


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    folder: Path
    printed: str
    seen: Any = None
    """What ``meanwhile`` returned while it ran."""

    def rows(self, model: str) -> dict[tuple[int, str], TrialRecord]:
        """(micro-batch, activations) -> the record on this GPU model."""
        records = RunFolder(self.folder).records().values()
        own = [record for record in records if record.environment["gpu_model"] == model]
        found = {
            (record.spec.micro_batch, str(record.spec.choices["activations"])): record
            for record in own
        }
        assert len(found) == len(own) == TRIALS, f"{model}: {len(own)} rows\n{self.printed}"
        return found


def sweep(
    folder: Path,
    variables: Mapping[str, str],
    *options: str,
    meanwhile: Callable[[subprocess.Popen[str]], Any],
) -> Swept:
    """Run the sweep, and ``meanwhile`` beside it, as a user does."""
    (folder / "config.yaml").write_text(json.dumps(CONFIG))
    command = [
        sys.executable,
        "-m",
        "orchestrator.sweep",
        str(folder / "config.yaml"),
        "--output",
        str(folder / "run"),
    ]
    begin, log = time.monotonic(), folder / "log.txt"
    with log.open("w") as file:
        driver = subprocess.Popen(
            [*command, *options], cwd=ROOT, env={**variables}, stdout=file, stderr=file, text=True
        )
        try:
            seen = meanwhile(driver)
            status = driver.wait(SWEEP_SECONDS)
        finally:
            driver.kill()
    print(f"{folder.name}: {time.monotonic() - begin:.0f} s\n{log.read_text()}")
    assert status == 0, log.read_text()
    return Swept(folder=folder / "run", printed=log.read_text(), seen=seen)


def until(look: Callable[[], Any], driver: subprocess.Popen[str]) -> Any:
    """What ``look`` returns, called until that is true or the driver has ended."""
    end = time.monotonic() + SWEEP_SECONDS
    while not (found := look()) and driver.poll() is None and time.monotonic() < end:
        time.sleep(0.2)
    return found


@pytest.fixture(scope="module")
def models() -> tuple[str, str]:
    """The GPU's name, and its name where it simulates a smaller card."""
    name = str(environment.describe()["gpu_model"])
    return name, f"{name} as {PLAYED_GIB} GiB"


@pytest.fixture(scope="module")
def unlike(tmp_path_factory) -> Swept:
    """A sweep over two nodes with a GPU each, one simulating a smaller card; metrics are read."""
    nodes, port = RayNodes(), 18_080
    often = {"RAY_metrics_report_interval_ms": "1000"}
    small = {"num_cpus": max(2, (os.cpu_count() or 4) // 2), "num_gpus": 1}
    try:
        with patch.dict(os.environ, with_gpus(UUIDS[0], **often)):
            nodes.add_node(**small, include_dashboard=False, metrics_export_port=port)
        smaller = {environment.SIMULATED_GPU_VARIABLE: str(PLAYED_GIB)}
        with patch.dict(os.environ, with_gpus(UUIDS[1], **smaller)):
            nodes.add_node(**small)

        def scrape() -> str:
            with (
                suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as answer,
            ):
                text = str(answer.read().decode())
                return text if 'outcome="ok"' in text else ""
            return ""

        folder = tmp_path_factory.mktemp("unlike")
        options = ("--address", nodes.address)
        return sweep(
            folder,
            with_gpus(UUIDS[0], **often),
            *options,
            meanwhile=lambda driver: until(scrape, driver),
        )
    finally:
        nodes.shutdown()


def test_each_model_has_every_record_once(unlike, models):
    large, small = map(unlike.rows, models)
    for key, row in large.items():
        assert row.outcome is Outcome.OK, f"{key}: {row.reason}\n{row.provenance.log}"
        assert row.measurements["gpu_uuid"] == UUIDS[0]
        assert small[key].measurements["gpu_uuid"] == UUIDS[1]
        if key == TOO_LARGE:
            assert small[key].outcome is Outcome.OUT_OF_MEMORY, small[key].reason
            assert small[key].reason.startswith(f"under a cap of {PLAYED_GIB} GiB")
            continue
        assert small[key].outcome is Outcome.OK, (
            f"{key}: {small[key].reason}\n{small[key].provenance.log}"
        )
        assert (
            small[key].measurements["peak_allocated_bytes"]
            == row.measurements["peak_allocated_bytes"]
        ), key
        assert small[key].measurements["device_peak_bytes"] <= PLAYED_GIB * 2**30


def test_unlike_models_are_ranked_apart(unlike, models):
    environments = load_dataset(unlike.folder).environments
    assert sorted(own.hardware for own in environments) == sorted(models)
    assert sorted(len(own.configurations) for own in environments) == [TRIALS - 1, TRIALS]


def test_prometheus_sees_the_sweep(unlike):
    exporters = ("prometheus_client", "opencensus", "opentelemetry.exporter.prometheus")
    for needed in (*exporters, "aiohttp_cors", "grpc"):
        pytest.importorskip(needed, reason="Ray exports no metrics without ray[default]")
    lines = [
        line
        for line in unlike.seen.splitlines()
        if "orchestrator_" in line and not line.startswith("#")
    ]
    print("\n".join(lines))
    assert any("orchestrator_trials" in line and 'outcome="ok"' in line for line in lines), (
        unlike.seen[-3000:]
    )


def is_actor(process: psutil.Process, parent: int) -> bool:
    """Whether it keeps this parent's slot: it started the parent, or watches it."""
    with suppress(psutil.Error, OSError):
        watched = [path.read_text() for path in Path(f"/proc/{process.pid}/fdinfo").iterdir()]
        return psutil.Process(parent).ppid() == process.pid != 1 or any(
            f"Pid:\t{parent}\n" in text for text in watched
        )
    return False


def test_killed_slot_and_other_process_change_no_record(unlike, models, tmp_path):
    folder = RunFolder(tmp_path / "run")

    def kill_slots_actor(driver: subprocess.Popen[str]) -> int:
        if not until(lambda: len(folder.records()) >= 2, driver):
            return 0
        parent = next(iter(folder.records().values())).provenance.slot_pid
        below = psutil.Process(driver.pid).children(recursive=True)
        actor = next((process for process in below if is_actor(process, parent)), None)
        if actor is not None:
            actor.kill()
        return actor.pid if actor else 0

    with other_process(UUIDS[1], "4"):
        swept = sweep(tmp_path, with_gpus(*UUIDS[:2]), meanwhile=kill_slots_actor)
    assert swept.seen, f"no actor was killed\n{swept.printed}"
    assert "is repeated" in swept.printed
    (note,) = json.loads((swept.folder / "run.json").read_text())["notes"]
    assert "is used by other processes, too" in note
    undisturbed, rows = unlike.rows(models[0]), swept.rows(models[0])
    for key, row in rows.items():
        assert row.outcome is undisturbed[key].outcome, f"{key}: {row.reason}\n{row.provenance.log}"
        peak = row.measurements["peak_allocated_bytes"]
        assert peak == undisturbed[key].measurements["peak_allocated_bytes"], key
        assert row.measurements["gpu_uuid"] == UUIDS[0]
        assert not has_any(row.flags, SHARED)


def test_gpu_slowed_by_another_process_is_named_and_gets_no_trial():
    variables = with_gpus(*UUIDS[:2])
    with other_process(UUIDS[1], "1", "--busy"):
        output = run_here("-c", SCREEN, **variables)
    answer = json.loads(output.splitlines()[-1])
    print(json.dumps(answer, indent=1))
    (note,) = answer["notes"]
    assert UUIDS[1] in note
    assert "was set aside: it is" in note
    assert answer["slots"] == 1


def test_doctor_calibrates_both(tmp_path):
    file = tmp_path / "rates.yaml"
    command = [sys.executable, "-m", "orchestrator.doctor", "--calibrate", str(file)]
    subprocess.run(command, cwd=ROOT, env=with_gpus(*UUIDS[:2]), check=False)
    assert {one["uuid"] for one in yaml.safe_load(file.read_text())} == set(UUIDS[:2])
