"""The experiment loggers that a sweep can report to, and their arguments."""

import importlib.util
import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, cast

from pydantic import AfterValidator, BeforeValidator

from orchestrator.planning.keys.config_types import Section, keys_of, sections_in
from orchestrator.storage.redaction import names_a_user


def _without_credentials(value: Any) -> Any:
    # At any depth, because run.json shows it. A user before the host is a credential:
    # https://user:key@host.
    if names_a_user(json.dumps(value, ensure_ascii=False)):
        raise ValueError("must hold no credentials; they come from the environment")
    return value


Argument = Annotated[Any, AfterValidator(_without_credentials)]


class Logger(Section):
    """One experiment logger. Its keys are arguments that its library takes."""

    package: ClassVar[str]
    """The package that it imports; also what pip installs."""
    class_path: ClassVar[str]
    """Our class that writes to it, as ``module:class``."""
    name_argument: ClassVar[str] = ""
    """The argument that defaults to the sweep's name."""


class TensorBoard(Logger):
    """event files in the run folder, one folder per trial"""

    package = "tensorboardX"
    class_path = "orchestrator.running.observers.loggers.tensorboard:TensorBoardLogger"


class Mlflow(Logger):
    """an MLflow experiment, one run per trial"""

    package = "mlflow"
    class_path = "orchestrator.running.observers.loggers.mlflow:MlflowLogger"
    name_argument = "experiment_name"

    tracking_uri: Argument = None
    """server or folder to write to; default: MLFLOW_TRACKING_URI"""
    registry_uri: Argument = None
    """server of the model registry"""
    experiment_name: Argument = None
    """experiment to add the runs to; default: the sweep's name"""
    tags: Argument = None
    """mapping of tags for every run"""


class Wandb(Logger):
    """a Weights & Biases project, one run per trial"""

    package = "wandb"
    class_path = "orchestrator.running.observers.loggers.wandb:WandbLogger"
    name_argument = "project"

    project: Argument = None
    """project to add the runs to; default: the sweep's name"""
    entity: Argument = None
    """user or team that owns the project"""
    group: Argument = None
    """group of the runs"""
    tags: Argument = None
    """list of tags for every run"""
    notes: Argument = None
    """longer description of every run"""
    job_type: Argument = None
    """type of the runs"""
    mode: Argument = None
    """online, offline or disabled"""
    dir: Argument = None
    """folder for wandb's own files"""
    settings: Argument = None
    """mapping of wandb.Settings"""


class Loggers(Section):
    """Experiment loggers to report to. Credentials come from the environment."""

    tensorboard: TensorBoard | None = None
    mlflow: Mlflow | None = None
    wandb: Wandb | None = None


LOGGERS: Mapping[str, type[Logger]] = {
    name: cast(type[Logger], next(sections_in(annotation)))
    for name, annotation in keys_of(Loggers).items()
}


class LoggerError(RuntimeError):
    """A logger cannot be used: its package is missing, or it refuses to start. One sentence."""


def _mapping(value: Any) -> Any:
    """A list of names as a mapping; in YAML a logger without arguments is a key without a value."""
    if isinstance(value, list):
        value = dict.fromkeys(map(str, value))
    if not isinstance(value, dict):
        raise ValueError("must be a list of loggers, or a mapping of loggers to their arguments")
    return {name: {} if arguments is None else arguments for name, arguments in value.items()}


LoggersChoice = Annotated[Loggers, BeforeValidator(_mapping)]
"""Loggers, written as a list of names or as a mapping of names to arguments."""


def missing_packages(names: Iterable[str]) -> list[str]:
    """A sentence for each logger whose package is not installed; other names say nothing."""
    packages = {name: LOGGERS[name].package for name in names if name in LOGGERS}
    missing = {name: own for name, own in packages.items() if importlib.util.find_spec(own) is None}
    return [f"{name} needs the package {own}: pip install {own}" for name, own in missing.items()]
