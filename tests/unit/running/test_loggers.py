"""Experiment trackers: chosen in the config, told of every trial through Ray's callbacks, never in the sweep's way."""

from __future__ import annotations

import inspect
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tensorboardX.proto.event_pb2 import Event

from jobs.record import Outcome, TrialRecord, record_to_json
from jobs.spec import to_json
from orchestrator import sweep
from orchestrator.planning import loggers as planned
from orchestrator.planning.config import ConfigError, load_config
from orchestrator.planning.loggers import TRACKERS, Tracker, TrackerError
from orchestrator.running import cluster, loggers  # noqa: F401  (the first quiets Tune before it is imported)
from tests.conftest import build_tiny_spec

RUN = {"name": "bert", "axes": ["micro_batch"]}
MODEL = "model: {task: causal-lm, architecture: llama}\n"


class Recorder:
    """A logger callback that remembers, and fails where told to."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments, self.heard = arguments, list[tuple[str, str, Any]]()

    def setup(self) -> None:
        if self.arguments.get("mode") == "refused":
            raise ValueError("No API key found.\nSee the manual.")

    def log_trial_start(self, trial: Any) -> None:
        if self.arguments.get("mode") == "gone":
            raise ConnectionError("the server is gone")
        self.heard.append(("start", str(trial), dict(trial.config)))

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        self.heard.append(("result", str(trial), result))

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        self.heard.append(("end", str(trial), failed))

    def on_experiment_end(self, trials: list[Any]) -> None:
        self.heard.append(("over", "", None))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> str:
    """A tracker more, which is one row more."""
    row = Tracker(
        callback=f"{__name__}:Recorder", package="json", arguments=("mode",), named="project"
    )
    monkeypatch.setattr(planned, "TRACKERS", {**TRACKERS, "recorder": row})
    monkeypatch.setattr(loggers, "TRACKERS", planned.TRACKERS)
    return "recorder"


def run_trials(callback: Any, records: list[TrialRecord]) -> None:
    """What Tune does with a trial that runs these, one after another."""
    trial = SimpleNamespace(
        trial_id="tune", config={"specs": [json.dumps(to_json(r.spec)) for r in records]}
    )
    callback.on_trial_start(0, [trial], trial)
    for record in records:
        callback.on_trial_result(1, [trial], trial, {"record": json.dumps(record_to_json(record))})
    callback.on_trial_complete(1, [trial], trial)
    callback.on_experiment_end([trial])


def record_of(outcome: Outcome, micro_batch: int, **measured: Any) -> TrialRecord:
    """A trial's end."""
    spec = build_tiny_spec({"micro_batch": micro_batch})
    return TrialRecord(spec=spec, outcome=outcome, measurements=measured, slot_seconds=2.0)


OK = record_of(
    Outcome.OK,
    2,
    samples_per_second=50.5,
    samples_per_second_ci95=float("inf"),
    matmul_dtype="bf16",
)
OOM = record_of(Outcome.OUT_OF_MEMORY, 64, peak_allocated_bytes=2**34)


def test_choices_are_parameters_and_figures_metrics(recorder: str, tmp_path: Path) -> None:
    (callback,) = loggers.callbacks({recorder: {}}, tmp_path, RUN)
    run_trials(callback, [OK, OOM])
    logger = callback._logger
    assert logger.arguments == {"project": "bert"}
    starts = [
        (name, config["trial_id"], config["optimizer"])
        for what, name, config in logger.heard
        if what == "start"
    ]
    assert starts == [
        ("micro_batch=2", OK.trial_id, "adamw_torch_fused"),
        ("micro_batch=64", OOM.trial_id, "adamw_torch_fused"),
    ]
    step = {"training_iteration": 1, "timesteps_total": None, "slot_seconds": 2.0}
    assert [result for what, _, result in logger.heard if what == "result"] == [
        {**step, "samples_per_second": 50.5, "ok": 1},
        {**step, "peak_allocated_bytes": 2**34, "ok": 0},
    ]
    assert [(what, failed) for what, _, failed in logger.heard if what in ("end", "over")] == [
        ("end", False),
        ("end", True),
        ("over", None),
    ]


def test_a_trial_that_tune_gives_up_has_failed(recorder: str, tmp_path: Path) -> None:
    (callback,) = loggers.callbacks({recorder: {}}, tmp_path, RUN)
    trial = SimpleNamespace(trial_id="tune", config={"specs": [json.dumps(to_json(OK.spec))]})
    callback.on_trial_start(0, [trial], trial)
    callback.on_trial_start(0, [trial], trial)  # begun again
    callback.on_experiment_end([trial])
    assert [(what, detail) for what, _, detail in callback._logger.heard if what == "end"] == [
        ("end", True)
    ]


def test_a_tracker_that_fails_is_told_nothing_more(
    recorder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (callback,) = loggers.callbacks({recorder: {"mode": "gone"}}, tmp_path, RUN)
    run_trials(callback, [OK, OOM])
    assert capsys.readouterr().err == "-- recorder: the server is gone; it is told nothing more\n"
    assert callback._logger.heard == []


def test_a_tracker_that_cannot_begin_is_a_sentence(recorder: str, tmp_path: Path) -> None:
    with pytest.raises(TrackerError, match=r"^trackers: recorder: No API key found\.$"):
        loggers.callbacks({recorder: {"mode": "refused"}}, tmp_path, RUN)


def events(path: Path) -> Iterator[Event]:
    """The events of a TensorBoard file: length, checksum, event, checksum."""
    content = path.read_bytes()
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        yield Event.FromString(content[12 : 12 + length])
        content = content[16 + length :]


def test_tensorboard_reads_what_was_measured(tmp_path: Path) -> None:
    (callback,) = loggers.callbacks({"tensorboard": {}}, tmp_path, RUN)
    run_trials(callback, [OK])
    (file,) = tmp_path.glob(f"tensorboard/{OK.trial_id}/events.out.tfevents.*")
    values = [value for event in events(file) for value in event.summary.value]
    scalars = {value.tag: value.simple_value for value in values if value.HasField("simple_value")}
    assert scalars["ray/tune/samples_per_second"] == 50.5
    assert "ray/tune/samples_per_second_ci95" not in scalars
    parameters = [value.metadata.plugin_data.content for value in values if "hparams" in value.tag]
    assert any(b"adamw_torch_fused" in content for content in parameters)


def test_every_row_names_a_callback_of_rays_and_arguments_that_it_takes() -> None:
    for name, row in TRACKERS.items():
        assert row.callback.startswith("ray.")
        takes = inspect.signature(loggers.pkgutil.resolve_name(row.callback).__init__).parameters
        free = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
        assert {*row.arguments, row.named} - {""} <= {*takes} or (name == "wandb" and free)
        assert not {"api_key", "api_key_file", "tracking_token"} & {*row.arguments}


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("", {}),
        ("trackers: [tensorboard, wandb]", {"tensorboard": {}, "wandb": {}}),
        (
            "trackers: {tensorboard: , wandb: {project: frontier}}",
            {"tensorboard": {}, "wandb": {"project": "frontier"}},
        ),
    ],
)
def test_a_config_chooses_trackers(text: str, chosen: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(MODEL + text)
    assert load_config(path).trackers == chosen


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trackers: tensorboard", "must be a list of trackers"),
        ("trackers: [tensorbord]", 'did you mean "tensorboard"?'),
        ("trackers: {tensorboard: {folder: x}}", "it takes no arguments"),
        ("trackers: {wandb: {api_key: x}}", 'wandb: "api_key" is not known'),
        (
            "trackers: {mlflow: {tracking_uri: 'https://me:hunter2@host'}}",
            "mlflow: tracking_uri must hold no credentials",
        ),
        ("trackers: {mlflow: 3}", "mlflow: must be a mapping of arguments, not 3"),
    ],
)
def test_what_no_row_knows_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(MODEL + text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{path}:2: trackers: ")


def test_a_missing_package_is_a_sentence_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, output = tmp_path / "sweep.yaml", tmp_path / "run"
    path.write_text(f"{MODEL}trackers: [absent]\n")
    row = Tracker(callback="ray.absent:Callback", package="a_package_that_nobody_has")
    monkeypatch.setattr(planned, "TRACKERS", {"absent": row})
    assert sweep.main([str(path), "--output", str(output)]) == 2
    needs = "trackers: absent needs the package a_package_that_nobody_has: pip install a_package_that_nobody_has\n"
    assert capsys.readouterr().err == needs
    assert not output.exists()
