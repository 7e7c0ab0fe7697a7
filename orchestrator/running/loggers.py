"""Experiment trackers told of every trial: Ray's logger callbacks, given the row in place of what Tune knows."""

from __future__ import annotations

import json
import math
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import tune

from jobs.record import Outcome, TrialRecord, record_from_json
from jobs.spec import TrialSpec, spec_from_json
from orchestrator.planning.loggers import TRACKERS, Chosen, TrackerError
from orchestrator.running.cluster.not_kept import NotKept

FIGURES = (
    "samples_per_second",
    "samples_per_second_ci95",
    "tokens_per_second",
    "step_seconds_median",
    "peak_allocated_bytes",
    "peak_reserved_bytes",
    "device_peak_bytes",
    "host_peak_resident_bytes",
    "joules_per_sample",
    "loss_first",
    "loss_last",
)
"""The columns that become metrics."""


def callbacks(chosen: Chosen, folder: Path, run: Mapping[str, Any]) -> list[tune.Callback]:
    """A Tune callback for each tracker, ready to be told; ``run`` is what ``run.json`` says. Raises TrackerError.

    Trackers that write files write them to the folder, under their name.
    """
    return [_begin(name, arguments, folder / name, run) for name, arguments in chosen.items()]


def figures(record: TrialRecord) -> dict[str, float]:
    """A row's main figures, those that were measured; ``ok`` is 1 or 0."""
    measured = {name: record.measurements.get(name) for name in FIGURES}
    numbers = {
        n: value
        for n, value in measured.items()
        if isinstance(value, (int, float)) and math.isfinite(value)
    }
    return {**numbers, "slot_seconds": record.slot_seconds, "ok": int(record.outcome is Outcome.OK)}


def _begin(
    name: str, arguments: Mapping[str, Any], folder: Path, run: Mapping[str, Any]
) -> tune.Callback:
    row = TRACKERS[name]
    named = {row.named: run["name"]} if row.named else {}
    try:
        logger = pkgutil.resolve_name(row.callback)(**{**named, **arguments})
        logger.setup()
    except Exception as error:  # whatever a tracker raises, it means that it cannot begin
        raise TrackerError(f"trackers: {name}: {_line(error)}") from error
    return _Told(name, logger, folder, run["axes"])


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:400]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Seen:
    """A trial as Ray's loggers look at one; equal only to itself, for they keep it as a key."""

    trial_id: str
    name: str
    config: Mapping[str, Any]
    """The trial's choices, its id in the table and what it was run for."""
    folder: Path
    experiment_dir_name: str
    checkpoint: None = None

    @property
    def evaluated_params(self) -> Mapping[str, Any]:
        return self.config

    def __str__(self) -> str:
        return self.name

    @property
    def local_path(self) -> str:
        """Where the logger may write; made when it asks."""
        self.init_local_path()
        return str(self.folder)

    def init_local_path(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)


class _Told(NotKept, tune.Callback):
    """Passes trials on to one logger; one that fails in mid-run is left alone, for the sweep does not need it."""

    def __init__(self, name: str, logger: Any, folder: Path, axes: Sequence[str]) -> None:
        self._name, self._logger, self._folder, self._axes = name, logger, folder, axes
        self._begun: dict[str, _Seen] = {}
        self._lost = False

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        for spec in _specs(trial)[:1]:
            self._begin(spec)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        if "record" in result:
            record = record_from_json(json.loads(result["record"]))
            seen = self._begin(record.spec)
            told = {**figures(record), "training_iteration": 1, "timesteps_total": None}
            self._tell("log_trial_result", 1, seen, told)
            self._end(record.trial_id, failed=record.outcome is not Outcome.OK)

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        for name in list(self._begun):  # their actors died, once too often or just now
            self._end(name, failed=True)
        self._tell("on_experiment_end", trials)

    def _begin(self, spec: TrialSpec) -> _Seen:
        if spec.trial_id not in self._begun:
            seen = _Seen(
                trial_id=spec.trial_id,
                name=self._title(spec),
                config={**spec.choices, "trial_id": spec.trial_id, "purpose": spec.purpose},
                folder=self._folder.absolute() / spec.trial_id,
                experiment_dir_name=self._folder.parent.name,
            )
            self._begun[spec.trial_id] = seen
            self._tell("log_trial_start", seen)
        return self._begun[spec.trial_id]

    def _end(self, trial_id: str, *, failed: bool) -> None:
        if (seen := self._begun.pop(trial_id, None)) is not None:
            self._tell("log_trial_end", seen, failed=failed)

    def _title(self, spec: TrialSpec) -> str:
        chosen = [f"{axis}={spec.choices[axis]}" for axis in self._axes if axis in spec.choices]
        return (
            " ".join([*chosen, *([f"repeat={spec.repeat}"] if spec.repeat else [])])
            or spec.trial_id
        )

    def _tell(self, what: str, *values: Any, **named: Any) -> None:
        if self._lost:
            return
        try:
            getattr(self._logger, what)(*values, **named)
        except Exception as error:  # a server that is gone, a disk that is full: anything
            self._lost = True
            print(
                f"-- {self._name}: {_line(error)}; it is told nothing more",
                file=sys.stderr,
                flush=True,
            )


def _specs(trial: Any) -> list[TrialSpec]:
    """What a Tune trial runs, one after another."""
    return [spec_from_json(json.loads(text)) for text in trial.config["specs"]]
