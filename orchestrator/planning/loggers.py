"""Experiment trackers that a sweep can report to, each a row of data; not the instruments of ``jobs/trackers``."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.planning.problems import advice, described


@dataclass(frozen=True, kw_only=True, slots=True)
class Tracker:
    """One of them."""

    callback: str
    """Ray's own logger callback, as ``module:class``."""
    package: str
    """What it imports; also what pip installs."""
    arguments: tuple[str, ...] = ()
    """What the callback takes, but for credentials: those come from the environment."""
    named: str = ""
    """The argument that is the sweep's name unless it is given."""


TRACKERS: Mapping[str, Tracker] = {
    "tensorboard": Tracker(callback="ray.tune.logger:TBXLoggerCallback", package="tensorboardX"),
    "mlflow": Tracker(
        callback="ray.air.integrations.mlflow:MLflowLoggerCallback",
        package="mlflow",
        arguments=("tracking_uri", "registry_uri", "experiment_name", "tags"),
        named="experiment_name",
    ),
    "wandb": Tracker(
        callback="ray.air.integrations.wandb:WandbLoggerCallback",
        package="wandb",
        arguments=(
            "project",
            "entity",
            "group",
            "tags",
            "notes",
            "job_type",
            "mode",
            "dir",
            "settings",
        ),
        named="project",
    ),
}

Chosen = Mapping[str, Mapping[str, Any]]
"""Tracker -> the arguments of its callback."""


class TrackerError(RuntimeError):
    """A tracker cannot be used: its package is missing, or it refuses to begin. One sentence."""


def read_trackers(value: object) -> dict[str, dict[str, Any]]:
    """The config's list of names, or mapping of names to arguments. Raises ValueError on what no row knows."""
    if isinstance(value, list):
        value = dict.fromkeys(map(str, value))
    if not isinstance(value, dict):
        raise ValueError("must be a list of trackers, or a mapping of trackers to their arguments")
    chosen = {name: {} if given is None else given for name, given in value.items()}
    for name, given in chosen.items():
        if name not in TRACKERS:
            raise ValueError(f'"{name}" is not known; {advice(name, list(TRACKERS))}')
        if not isinstance(given, dict):
            raise ValueError(f"{name}: must be a mapping of arguments, not {described(given)}")
        _check(name, given)
    return chosen


def _check(name: str, given: Mapping[str, Any]) -> None:
    known = TRACKERS[name].arguments
    for argument, value in given.items():
        if argument not in known:
            takes = advice(argument, known) if known else "it takes no arguments"
            raise ValueError(f'{name}: "{argument}" is not known; {takes}')
        if isinstance(value, str) and re.search(r"://[^/]*@", value):
            raise ValueError(
                f"{name}: {argument} must hold no credentials; they come from the environment"
            )


def refuse_missing(names: Iterable[str]) -> None:
    """Raises TrackerError where a tracker's package is not installed."""
    for name in names:
        package = TRACKERS[name].package
        if importlib.util.find_spec(package) is None:
            raise TrackerError(
                f"trackers: {name} needs the package {package}: pip install {package}"
            )
