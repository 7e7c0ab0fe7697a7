"""One GPU or two? A row of one GPU, with forecasts of the ways of sharing it."""

import json
from pathlib import Path

import pytest

from jobs.record import Outcome, TrialRecord
from orchestrator import predict, recommend
from orchestrator.analysis.dataset import load_dataset
from orchestrator.api.forecasts import gpu_forecasts
from orchestrator.api.run import load
from orchestrator.planning.plan import plan
from orchestrator.units import GIB
from tests.support.config_files import config_of
from tests.support.records import write_run

CONFIG = """
model:
  task: causal-lm
  architecture: llama
  config: {hidden_size: 256, intermediate_size: 512, num_hidden_layers: 2, vocab_size: 512}
data: {synthetic: {sequence_length: 128}}
baseline: {precision: bf16, micro_batch: 8, accumulation: 4}
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    config = config_of(tmp_path, CONFIG)
    (spec,) = plan(config, has_gpu=True).trials
    figures = {
        "peak_allocated_bytes": GIB,
        "device_peak_bytes": 2 * GIB,
        "samples_per_second": 500.0,
        "gpu_uuid": "GPU-1",
    }
    environment = {"gpu_model": "NVIDIA H100 80GB HBM3", "gpu_memory_bytes": 80 * GIB}
    record = TrialRecord(
        spec=spec, outcome=Outcome.OK, measurements=figures, environment=environment
    )
    return write_run(tmp_path / "run", [record], config=config.to_json())


def test_recommend_forecasts_each_way_of_sharing_from_the_measured_speed(run, capsys):
    assert recommend.main([str(run), "--gpus", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["gpu_forecasts"]
    ways = {own["sharding"] for own in found}
    assert {"ddp", "fsdp2_full", "zero1", "zero2", "zero3"} <= ways
    assert all(own["effective_batch"] == 32 for own in found)
    speeds = [own["samples_per_second"] for own in found]
    assert speeds == sorted(speeds, reverse=True)
    for own in found:
        assert own["low"] <= own["samples_per_second"] <= own["high"]
        assert own["scaling_efficiency"] == pytest.approx(own["samples_per_second"] / 1000)


def test_nothing_is_forecast_to_fit_a_memory_smaller_than_a_context(run):
    best = load(run).recommend().best
    assert best is not None
    dataset = load_dataset(run)
    assert gpu_forecasts(dataset, best, 2, memory_bytes=GIB // 8) == []


def test_predict_forecasts_trials_of_as_many_gpus_as_asked(tmp_path, capsys):
    file = tmp_path / "sweep.yaml"
    file.write_text(CONFIG + "trials: [{sharding: none}, {sharding: ddp}]\n")
    assert predict.main([str(file), "--gpus", "2", "--gpu", "h100", "--json"]) == 0
    one, two = json.loads(capsys.readouterr().out)
    # NCCL's buffers come on top, and both GPUs train.
    assert two["device_bytes"] > one["device_bytes"]
    assert two["step_seconds_low"] > 0
