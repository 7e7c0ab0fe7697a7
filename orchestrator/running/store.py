"""The run folder: one atomic file per finished trial, and one driver at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jobs.record import TrialRecord, record_from_json, record_to_json
from orchestrator.results.run import RECORDS, RUN

_LOCK = "lock"


class RunFolderBusyError(RuntimeError):
    """Another driver is writing to this run folder."""


class RunFolder:
    """A run's records on disk. Written beside and moved into place, so that a killed driver leaves no half file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unreadable: list[Path] = []
        """Files among the records that are not records; they are left alone."""

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process. Raises RunFolderBusyError when another one does."""
        (self.path / RECORDS).mkdir(parents=True, exist_ok=True)
        with open(self.path / _LOCK, "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunFolderBusyError(f"{self.path} is in use by another running sweep") from None
            yield

    def exists(self) -> bool:
        """Whether a run was started here."""
        return (self.path / RUN).exists()

    def describe(self, run: Mapping[str, Any]) -> None:
        """Write ``run.json``: configuration, command, budgets, baseline, one-time costs."""
        _write(self.path / RUN, run)

    def keep(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file of the run's own."""
        _write(self.path / name, content)

    def write(self, record: TrialRecord) -> None:
        """Keep a record; an earlier one of the same trial is replaced."""
        _write(self.path / RECORDS / f"{record.trial_id}.json", record_to_json(record))

    def remove(self, trial_id: str) -> None:
        """Forget a trial, because it is going to be repeated or is no longer planned."""
        (self.path / RECORDS / f"{trial_id}.json").unlink(missing_ok=True)

    def records(self) -> dict[str, TrialRecord]:
        """Every readable record by trial id; what is torn or foreign is listed in ``unreadable``."""
        found: dict[str, TrialRecord] = {}
        self.unreadable = []
        for path in sorted((self.path / RECORDS).glob("*.json")):
            try:
                record = record_from_json(json.loads(path.read_text()))
            except (KeyError, TypeError, ValueError, UnicodeDecodeError):
                self.unreadable.append(path)
                continue
            found[record.trial_id] = record
        return found


def _write(path: Path, content: Mapping[str, Any]) -> None:
    partial = path.with_suffix(f".{os.getpid()}.partial")
    with open(partial, "w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
