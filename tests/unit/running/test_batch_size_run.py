"""Batch sizes tuned without Ray, on simulated devices."""

import json
from pathlib import Path

from jobs.isolation import prewarm
from orchestrator import batch_size
from orchestrator.planning.technique_sets import technique_sets
from orchestrator.running.batch_size_run import HardwareAnswers, tune_batch_sizes
from orchestrator.running.early_start import Start
from orchestrator.running.options import RunOptions
from orchestrator.search.batch_size.batch_size_search import BatchSizeGoal
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import TINY_CONFIG
from tests.support.config_files import config_of
from tests.support.devices import Device
from tests.support.fake_ray import FakeRay

CONFIG = """\
model: {task: sequence-classification, architecture: bert}
axes: {optimizer: [adamw_torch_fused, sgd]}
"""


def tune(
    folder: Path, goal: BatchSizeGoal, *, resume: bool = False, every: bool = False
) -> list[HardwareAnswers]:
    config = config_of(folder, CONFIG)
    run_folder = RunFolder(folder)
    sets = technique_sets(config, every=every)
    start = Start(config=config, options=RunOptions(resume=resume), folder=run_folder)
    with run_folder.locked():
        return tune_batch_sizes(start, sets, goal)


def test_each_gpu_model_is_tuned_in_a_folder_of_its_own(tmp_path, monkeypatch):
    FakeRay(monkeypatch, "NVIDIA A100", "NVIDIA H200").run_trial = Device().run
    tuned = tune(tmp_path, BatchSizeGoal(max_micro_batch=16))
    assert [part.hardware for part in tuned] == ["NVIDIA A100", "NVIDIA H200"]
    assert [part.folder.path.name for part in tuned] == ["NVIDIA-A100", "NVIDIA-H200"]
    for part in tuned:
        (answer,) = part.answers
        assert answer.largest.micro_batch == 16
        ids = {size.trial_id for size in answer.sizes}
        assert ids == set(part.folder.records())
        assert (part.folder.path / "trials.parquet").exists()


def test_every_technique_set_has_its_answer(tmp_path, monkeypatch, capsys):
    FakeRay(monkeypatch, "NVIDIA H200").run_trial = Device().run
    (part,) = tune(tmp_path, BatchSizeGoal(max_micro_batch=16), every=True)
    assert [answer.techniques for answer in part.answers] == ["adamw_torch_fused", "sgd"]
    assert part.folder.path == tmp_path
    printed = capsys.readouterr().out
    assert "now on 1 GPU (NVIDIA H200)" in printed
    assert "batch 16×1 · adamw_torch_fused" in printed


def test_gpu_memory_limits_the_size_and_a_cpu_does_not(tmp_path, monkeypatch):
    FakeRay(monkeypatch, "NVIDIA H200").run_trial = Device().run
    (part,) = tune(tmp_path, BatchSizeGoal())
    assert part.answers[0].largest.micro_batch < BatchSizeGoal().largest_size(has_gpu=True)
    assert BatchSizeGoal().largest_size(has_gpu=False) == 64


def test_every_answer_is_a_trial_and_a_resume_repeats_none(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(prewarm.FOLDER_VARIABLE, str(tmp_path))  # no parent is started ahead
    config, folder = tmp_path / "tiny.yaml", tmp_path / "run"
    ray = FakeRay(monkeypatch, "NVIDIA H200")
    config.write_text(TINY_CONFIG)
    arguments = [str(config), "--output", str(folder), "--max-micro-batch", "12", "--json"]
    arguments += ["--effective-batch", "24"]
    assert batch_size.main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    ((answer,),) = (hardware["answers"] for hardware in document["hardware"])
    records = RunFolder(folder).records()
    assert {size["trial_id"] for size in answer["sizes"]} == set(records)
    assert answer["largest"]["micro_batch"] == 12
    accumulated, fastest = answer["accumulated"], answer["fastest"]
    assert accumulated["micro_batch"] * accumulated["accumulation"] == 24
    peak = records[fastest["trial_id"]].measurements["peak_allocated_bytes"]
    assert fastest["memory_bytes"] == peak
    assert json.loads((folder / "batch_size.json").read_text()) == document
    ray.ran.clear()
    assert batch_size.main([*arguments, "--resume"]) == 0
    assert json.loads(capsys.readouterr().out)["hardware"] == document["hardware"]
    assert ray.ran == []
