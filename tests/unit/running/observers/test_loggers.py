"""Experiment loggers: they get every measured trial, and never stop the sweep."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from jobs.record import Outcome
from orchestrator import sweep
from orchestrator.planning.keys.loggers import LOGGERS, Logger, LoggerError
from orchestrator.running.observers.loggers import (
    LoggedTrial,
    LoggerObserver,
    logged_trial,
    logger_observers,
)
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import build_tiny_spec
from tests.support.records import ended
from tests.support.tensorboard import scalars_and_parameters

AXES = ("micro_batch",)


class Remembering:
    """A logger that remembers, and fails on request. ``made`` are all of them."""

    made: ClassVar[list[Any]] = []

    def __init__(self, folder: Path, *, project: str, mode: str = "") -> None:
        if mode == "refused":
            raise ValueError("No API key found.\nSee the manual.")
        self.folder = folder
        self.project = project
        self._mode = mode
        self.trials: list[LoggedTrial] = []
        Remembering.made.append(self)

    def log(self, trial: LoggedTrial) -> None:
        if self._mode == "gone":
            raise ConnectionError("the server is gone")
        self.trials.append(trial)


class RememberingChoice(Logger):
    """keeps trials in memory"""

    package = "json"
    class_path = f"{__name__}:Remembering"
    name_argument = "project"


ROWS = {"remembering": RememberingChoice}


def observer_of(folder: Path, **arguments: Any) -> tuple[LoggerObserver, Remembering]:
    choices = {"remembering": arguments}
    (observer,) = logger_observers(choices, RunFolder(folder), "bert", AXES, rows=ROWS)
    return observer, Remembering.made[-1]


OK = ended(
    build_tiny_spec({"micro_batch": 2}),
    started_at=1000.0,
    seconds=2.0,
    measurements={
        "samples_per_second": 50.5,
        "samples_per_second_ci95": float("inf"),
        "matmul_dtype": "bf16",
    },
)
OOM = ended(
    build_tiny_spec({"micro_batch": 64}),
    Outcome.OUT_OF_MEMORY,
    seconds=2.0,
    measurements={"peak_allocated_bytes": 2**34},
)


def test_logger_gets_measured_trials_in_order(tmp_path):
    observer, logger = observer_of(tmp_path)
    observer.started(OK.spec)
    observer.ended(OK, measured=False)
    observer.ended(OOM, measured=True)
    observer.message("a node joined")
    observer.ended(OK, measured=True)
    observer.closed()
    assert (logger.project, logger.folder) == ("bert", tmp_path / "remembering")
    assert [trial.trial_id for trial in logger.trials] == [OOM.trial_id, OK.trial_id]


def test_logged_trial_has_choices_as_parameters_and_finite_metrics():
    trial = logged_trial(OK, AXES)
    assert trial.name == "batch 2"
    assert trial.parameters["optimizer"] == "adamw_torch_fused"
    assert trial.parameters["trial_id"] == OK.trial_id
    assert trial.parameters["purpose"] == "search"
    assert trial.metrics == {"slot_seconds": 2.0, "ok": 1, "samples_per_second": 50.5}
    assert (trial.is_ok, trial.started_at, trial.ended_at) == (True, 1000.0, 1002.0)
    oom = {"slot_seconds": 2.0, "ok": 0, "peak_allocated_bytes": 2**34}
    assert logged_trial(OOM, AXES).metrics == oom


def test_logger_that_fails_is_reported_once_and_left_alone(tmp_path, capsys):
    observer, logger = observer_of(tmp_path, mode="gone")
    observer.ended(OK, measured=True)
    observer.ended(OOM, measured=True)
    observer.closed()
    sentence = "-- remembering: the server is gone; nothing more is logged there\n"
    assert capsys.readouterr().err == sentence
    assert logger.trials == []


def test_logger_that_refuses_to_start_is_a_sentence(tmp_path):
    with pytest.raises(LoggerError, match=r"^loggers: remembering: No API key found\.$"):
        observer_of(tmp_path, mode="refused")


def test_tensorboard_has_scalars_and_parameters(tmp_path):
    (observer,) = logger_observers({"tensorboard": {}}, RunFolder(tmp_path), "bert", AXES)
    observer.ended(OK, measured=True)
    observer.closed()
    (file,) = tmp_path.glob(f"tensorboard/{OK.trial_id}/events.out.tfevents.*")
    scalars, parameters = scalars_and_parameters(file)
    assert scalars["samples_per_second"] == 50.5
    assert "samples_per_second_ci95" not in scalars
    assert b"adamw_torch_fused" in parameters


class Mlflow:
    """An MLflow server in memory, and the modules that a logger imports of it."""

    def __init__(self) -> None:
        self.experiments: dict[str, str] = {}
        self.runs: list[dict[str, Any]] = []
        self.uris: tuple[str | None, ...] = ()

    def modules(self) -> Mapping[str, Any]:
        entities: Any = ModuleType("mlflow.entities")
        entities.Metric = lambda key, value, timestamp, step: (key, value, timestamp)
        entities.Param = entities.RunTag = lambda key, value: (key, value)
        tracking: Any = ModuleType("mlflow.tracking")
        tracking.MlflowClient = self._connect
        package = ModuleType("mlflow")
        return {"mlflow": package, "mlflow.entities": entities, "mlflow.tracking": tracking}

    def _connect(self, *uris: str | None) -> Any:
        self.uris = uris
        return self

    def get_experiment_by_name(self, name: str) -> Any:
        if name not in self.experiments:
            return None
        return SimpleNamespace(experiment_id=self.experiments[name])

    def create_experiment(self, name: str) -> str:
        return self.experiments.setdefault(name, f"id of {name}")

    def create_run(self, experiment_id: str, *, start_time: int, run_name: str) -> Any:
        run = {"experiment": experiment_id, "start": start_time, "name": run_name}
        self.runs.append(run)
        return SimpleNamespace(info=SimpleNamespace(run_id=len(self.runs) - 1))

    def log_batch(self, run_id: int, *, metrics: Any, params: Any, tags: Any) -> None:
        self.runs[run_id] |= {"metrics": metrics, "params": dict(params), "tags": dict(tags)}

    def set_terminated(self, run_id: int, *, status: str, end_time: int) -> None:
        self.runs[run_id] |= {"status": status, "end": end_time}


class Wandb(ModuleType):
    def __init__(self) -> None:
        super().__init__("wandb")
        self.runs: list[dict[str, Any]] = []
        self.logins = 0

    def login(self) -> None:
        self.logins += 1

    def init(self, **arguments: Any) -> Any:
        run = dict(arguments)
        self.runs.append(run)
        return SimpleNamespace(
            log=lambda metrics: run.update(metrics=metrics),
            finish=lambda exit_code: run.update(exit_code=exit_code),
        )


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mlflow]:
    """In the place of the package, which is not installed."""
    server = Mlflow()
    for name, module in server.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    yield server
    sys.modules.pop("orchestrator.running.observers.loggers.mlflow", None)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wandb]:
    """In the place of the package, which is not installed."""
    module = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    yield module
    sys.modules.pop("orchestrator.running.observers.loggers.wandb", None)


def test_mlflow_has_a_run_per_trial(mlflow, tmp_path):
    arguments = {"tracking_uri": "http://host", "tags": {"team": "b"}}
    (observer,) = logger_observers({"mlflow": arguments}, RunFolder(tmp_path), "bert", AXES)
    observer.ended(OK, measured=True)
    observer.ended(OOM, measured=True)
    observer.closed()
    assert (mlflow.uris, mlflow.experiments) == (("http://host", None), {"bert": "id of bert"})
    ok, oom = mlflow.runs
    assert (ok["experiment"], ok["name"], ok["status"]) == ("id of bert", "batch 2", "FINISHED")
    assert (ok["start"], ok["end"], ok["tags"]) == (1_000_000, 1_002_000, {"team": "b"})
    assert ("samples_per_second", 50.5, 1_002_000) in ok["metrics"]
    assert ok["params"]["optimizer"] == "adamw_torch_fused"
    assert oom["status"] == "FAILED"
    mlflow.experiments["old"] = "7"
    choices = {"mlflow": {"experiment_name": "old"}}
    (observer,) = logger_observers(choices, RunFolder(tmp_path), "bert", AXES)
    observer.ended(OK, measured=True)
    observer.closed()
    assert mlflow.runs[-1]["experiment"] == "7"


def test_wandb_has_a_run_per_trial(wandb, tmp_path):
    choices = {"wandb": {"entity": "us"}}
    (observer,) = logger_observers(choices, RunFolder(tmp_path), "bert", AXES)
    observer.ended(OK, measured=True)
    observer.ended(OOM, measured=True)
    observer.closed()
    ok, oom = wandb.runs
    assert (ok["project"], ok["entity"], ok["name"]) == ("bert", "us", "batch 2")
    assert ok["dir"] == str(tmp_path / "wandb")
    assert ok["config"]["optimizer"] == "adamw_torch_fused"
    assert ok["metrics"]["samples_per_second"] == 50.5
    assert (ok["exit_code"], oom["exit_code"], wandb.logins) == (0, 1, 1)
    logger_observers({"wandb": {"mode": "offline"}}, RunFolder(tmp_path), "bert", AXES)
    assert wandb.logins == 1, "offline needs no login"


def test_missing_package_is_a_sentence_before_anything_starts(tmp_path, monkeypatch, capsys):
    path, output = tmp_path / "sweep.yaml", tmp_path / "run"
    path.write_text("model: {task: causal-lm, architecture: llama}\nloggers: [wandb]\n")
    monkeypatch.setattr(LOGGERS["wandb"], "package", "a_package_of_no_one")
    assert sweep.main([str(path), "--output", str(output)]) == 2
    assert capsys.readouterr().err == (
        "loggers: wandb needs the package a_package_of_no_one: pip install a_package_of_no_one\n"
    )
    assert not output.exists()
