"""The batch-size verb through a real Ray and a real Trainer, on a tiny model."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.record import Outcome
from orchestrator import batch_size
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import TINY_CONFIG

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_with_libraries")]

CONFIG = (
    TINY_CONFIG
    + """\
axes:
  micro_batch: [1, 2]
  optimizer: [adamw_torch_fused, sgd]
measure: {timeout: 60s}
"""
)


def tune(
    config: Path, folder: Path, *options: str, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, Any]]:
    """The verb's exit status and the JSON it printed."""
    arguments = [str(config), "--output", str(folder), "--max-micro-batch", "12", "--json"]
    status = batch_size.main([*arguments, *options])
    return status, json.loads(capsys.readouterr().out)


def test_every_answer_is_a_trial_and_a_resume_repeats_none(tmp_path, capsys):
    config = tmp_path / "tiny.yaml"
    config.write_text(CONFIG)
    folder = tmp_path / "run"
    status, document = tune(config, folder, "--effective-batch", "24", capsys=capsys)
    assert status == 0
    (hardware,) = document["hardware"]
    (answer,) = hardware["answers"]
    records = RunFolder(folder).records()
    assert {size["trial_id"] for size in answer["sizes"]} == set(records)
    assert {record.outcome for record in records.values()} == {Outcome.OK}
    assert len({record.provenance.slot_pid for record in records.values()}) == 1
    assert answer["largest"]["micro_batch"] == 12
    accumulated = answer["accumulated"]
    assert accumulated["micro_batch"] * accumulated["accumulation"] == 24
    fastest = answer["fastest"]
    peak = records[fastest["trial_id"]].measurements["peak_allocated_bytes"]
    assert fastest["memory_bytes"] == peak
    assert json.loads((folder / "batch_size.json").read_text()) == document
    assert (folder / "trials.parquet").stat().st_size > 0

    written = {path: path.stat().st_mtime_ns for path in (folder / "records").iterdir()}
    options = ("--effective-batch", "24", "--resume")
    _, again = tune(config, folder, *options, capsys=capsys)
    assert again["hardware"] == document["hardware"]
    assert {path: path.stat().st_mtime_ns for path in (folder / "records").iterdir()} == written
