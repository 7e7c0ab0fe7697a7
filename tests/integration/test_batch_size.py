"""The batch-size verb through a real Ray and a real Trainer, on a tiny model."""

import json

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
measure: {timeout: 10m}
cpu_fallback: {warmup_steps: 1, steps: 2}
"""
)


def test_every_answer_is_a_trial_and_a_resume_repeats_none(tmp_path, capsys):
    config = tmp_path / "tiny.yaml"
    config.write_text(CONFIG)
    folder = tmp_path / "run"
    arguments = [str(config), "--output", str(folder), "--max-micro-batch", "12", "--json"]
    arguments += ["--effective-batch", "24"]
    assert batch_size.main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
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
    assert batch_size.main([*arguments, "--resume"]) == 0
    assert json.loads(capsys.readouterr().out)["hardware"] == document["hardware"]
    assert {path: path.stat().st_mtime_ns for path in (folder / "records").iterdir()} == written
