"""The experiment loggers that a sweep can report to, each a row of data."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.planning.problems import advice, described
from orchestrator.storage.redaction import names_a_user

LoggerChoices = Mapping[str, Mapping[str, Any]]
"""Name of a logger -> the arguments that the sweep gives it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggerRow:
    """One experiment logger."""

    doc: str
    """What it writes and where, in one line."""
    package: str
    """The package that it imports; also what pip installs."""
    class_path: str
    """Our class that writes to it, as ``module:class``."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Argument -> its meaning. Credentials are not among them: they come from the environment."""
    name_argument: str = ""
    """The argument that defaults to the sweep's name."""


LOGGERS: Mapping[str, LoggerRow] = {
    "tensorboard": LoggerRow(
        doc="event files in the run folder, one folder per trial",
        package="tensorboardX",
        class_path="orchestrator.running.observers.loggers.tensorboard:TensorBoardLogger",
    ),
    "mlflow": LoggerRow(
        doc="an MLflow experiment, one run per trial",
        package="mlflow",
        class_path="orchestrator.running.observers.loggers.mlflow:MlflowLogger",
        arguments={
            "tracking_uri": "server or folder to write to; default: MLFLOW_TRACKING_URI",
            "registry_uri": "server of the model registry",
            "experiment_name": "experiment to add the runs to; default: the sweep's name",
            "tags": "mapping of tags for every run",
        },
        name_argument="experiment_name",
    ),
    "wandb": LoggerRow(
        doc="a Weights & Biases project, one run per trial",
        package="wandb",
        class_path="orchestrator.running.observers.loggers.wandb:WandbLogger",
        arguments={
            "project": "project to add the runs to; default: the sweep's name",
            "entity": "user or team that owns the project",
            "group": "group of the runs",
            "tags": "list of tags for every run",
            "notes": "longer description of every run",
            "job_type": "type of the runs",
            "mode": "online, offline or disabled",
            "dir": "folder for wandb's own files",
            "settings": "mapping of wandb.Settings",
        },
        name_argument="project",
    ),
}


class LoggerError(RuntimeError):
    """A logger cannot be used: its package is missing, or it refuses to start. One sentence."""


def read_loggers(value: object) -> dict[str, dict[str, Any]]:
    """The config's list of names, or mapping of names to arguments.

    Raises ValueError for a logger or an argument that no row has.
    """
    if isinstance(value, list):
        value = dict.fromkeys(map(str, value))
    if not isinstance(value, dict):
        raise ValueError("must be a list of loggers, or a mapping of loggers to their arguments")
    choices = {}
    for name, arguments in value.items():
        if name not in LOGGERS:
            raise ValueError(f'"{name}" is not known; {advice(name, list(LOGGERS))}')
        # In YAML a logger without arguments is a key without a value.
        choices[name] = arguments
        if arguments is None:
            choices[name] = {}
        _check_arguments(name, choices[name])
    return choices


def _check_arguments(name: str, arguments: object) -> None:
    if not isinstance(arguments, dict):
        raise ValueError(f"{name}: must be a mapping of arguments, not {described(arguments)}")
    valid = list(LOGGERS[name].arguments)
    for argument, value in arguments.items():
        if argument not in valid:
            hint = "it takes no arguments"
            if valid:
                hint = advice(argument, valid)
            raise ValueError(f'{name}: "{argument}" is not known; {hint}')
        if _holds_credentials(value):
            raise ValueError(
                f"{name}: {argument} must hold no credentials; they come from the environment"
            )


def _holds_credentials(value: Any) -> bool:
    """Whether a URL in the value, at any depth, names a user: the config is copied to run.json."""
    # A user before the host is a credential: https://user:key@host.
    if isinstance(value, str):
        return names_a_user(value)
    if isinstance(value, Mapping):
        return any(_holds_credentials(item) for item in value.values())
    if isinstance(value, list):
        return any(map(_holds_credentials, value))
    return False


def refuse_missing(names: Iterable[str]) -> None:
    """Raises LoggerError for a logger whose package is not installed."""
    for name in names:
        package = LOGGERS[name].package
        if importlib.util.find_spec(package) is None:
            raise LoggerError(f"loggers: {name} needs the package {package}: pip install {package}")
