"""Experiment loggers as observers of a session. ``planning/keys/loggers.py`` has their arguments.

tensorboard.py, mlflow.py, wandb.py   one class each, which writes trials with one library
"""

from __future__ import annotations

import math
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from jobs.record import Outcome, TrialRecord
from jobs.spec import Choice
from orchestrator.labels import trial_label
from orchestrator.planning.keys.loggers import LOGGERS, Logger, LoggerError
from orchestrator.reporting.terminal.safe_text import shortened
from orchestrator.running.observers import Observer
from orchestrator.storage.run_folder import RunFolder

METRICS = (
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


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedTrial:
    """The data that a logger writes about a trial that has ended."""

    trial_id: str
    name: str
    """The configuration's label."""
    parameters: Mapping[str, Choice]
    """The trial's choices, its id and its purpose."""
    metrics: Mapping[str, float]
    """Finite numbers; ``ok`` is 1 or 0."""
    started_at: float
    """Unix time, seconds."""
    ended_at: float

    @property
    def is_ok(self) -> bool:
        return self.metrics["ok"] == 1


class ExperimentLogger(Protocol):
    """Writes trials with one library; made from its subfolder of the run and the arguments of its
    row."""

    def log(self, trial: LoggedTrial) -> None:
        """Write a trial that has ended."""


def logger_observers(
    choices: Mapping[str, Mapping[str, Any]],
    folder: RunFolder,
    sweep: str,
    axes: Sequence[str],
    *,
    rows: Mapping[str, type[Logger]] = LOGGERS,
) -> list[LoggerObserver]:
    """An observer for each chosen logger of a run; ``axes`` are those of the labels. Nothing is
    logged once the folder is another driver's. Raises LoggerError if a logger refuses to start."""
    observers = []
    for name, arguments in choices.items():
        row = rows[name]
        defaults = {row.name_argument: sweep} if row.name_argument else {}
        try:
            make = pkgutil.resolve_name(row.class_path)
            logger = make(folder.path / name, **{**defaults, **arguments})
        except Exception as error:  # whatever a library raises means that it cannot start
            raise LoggerError(f"loggers: {name}: {_one_line(error)}") from error
        observers.append(LoggerObserver(name, logger, axes, folder))
    return observers


class LoggerObserver(Observer):
    """Passes measured trials to a logger, in a thread, so that no slot waits for a slow server. If
    a logger fails, that is reported once on stderr, and the logger is not used again."""

    def __init__(
        self, name: str, logger: ExperimentLogger, axes: Sequence[str], folder: RunFolder
    ) -> None:
        self._folder = folder
        self._name = name
        self._logger = logger
        self._axes = axes
        self._has_failed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    def ended(self, record: TrialRecord, *, measured: bool) -> None:
        if measured and self._folder.is_ours():
            self._thread.submit(self._log, logged_trial(record, self._axes))

    def closed(self) -> None:
        """Wait until everything is logged."""
        self._thread.shutdown()

    def _log(self, trial: LoggedTrial) -> None:
        if self._has_failed:
            return
        try:
            self._logger.log(trial)
        except Exception as error:  # a server that is gone, a full disk: anything
            self._has_failed = True
            sentence = f"-- {self._name}: {_one_line(error)}; nothing more is logged there"
            print(sentence, file=sys.stderr, flush=True)


def logged_trial(record: TrialRecord, axes: Sequence[str]) -> LoggedTrial:
    """The data that loggers write about a record."""
    measured = record.measurements
    # Some libraries refuse NaN and infinity, and others draw them as zero.
    finite = {
        name: measured[name]
        for name in METRICS
        if isinstance(measured.get(name), (int, float)) and math.isfinite(measured[name])
    }
    # The id and the purpose are parameters, because every library can filter by parameters.
    spec = record.spec
    identity = {"trial_id": spec.trial_id, "purpose": spec.purpose.value}
    is_ok = int(record.outcome is Outcome.OK)
    return LoggedTrial(
        trial_id=spec.trial_id,
        name=trial_label(spec, axes),
        parameters={**spec.choices, **identity},
        metrics={"slot_seconds": record.slot_seconds, "ok": is_ok, **finite},
        started_at=record.started_at,
        ended_at=record.started_at + record.slot_seconds,
    )


def _one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return shortened(lines[0])
