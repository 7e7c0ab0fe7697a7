"""The run folder: one atomic file per finished trial, and one driver at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from jobs.record import Outcome, TrialRecord, record_to_json
from orchestrator.storage.record_reader import read_record
from orchestrator.storage.run_metadata import LOGS, RECORDS, RUN, record_files, written_beside

_LOCK = "lock"
LAST_LINES = 4000
"""Characters of a trial's output that its record keeps, where it did not end well."""


class RunFolderError(RuntimeError):
    """The run folder cannot be written: no room, no permission, or something else in its place."""


class RunFolderBusyError(RunFolderError):
    """Another driver is writing to this run folder."""


class RunFolder:
    """A run's records on disk. Written beside and moved into place, so that a killed driver leaves no half file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unreadable: list[Path] = []
        """Files among the records that are not records; they are left alone."""
        self._files: dict[str, set[Path]] = {}
        """Where the trials' records were found: an earlier version digested a trial to another name."""

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process. Raises RunFolderBusyError when another one does, else RunFolderError."""
        try:
            (self.path / RECORDS).mkdir(parents=True, exist_ok=True)
            lock = open(self.path / _LOCK, "a")  # noqa: SIM115
        except OSError as error:
            raise RunFolderError(
                f"cannot write to {self.path}: {error.strerror or error}"
            ) from error
        with lock:
            if not (
                _held(lock) or _held(lock, after_seconds=0.1)
            ):  # somebody may just have asked whether it is free
                raise RunFolderBusyError(f"{self.path} is in use by another running sweep")
            yield

    def in_use(self) -> bool:
        """Whether a driver holds the folder now."""
        try:
            lock = open(self.path / _LOCK)  # noqa: SIM115
        except OSError:
            return False
        with lock:
            return not _held(lock, fcntl.LOCK_SH)

    def exists(self) -> bool:
        """Whether a run was started here."""
        return (self.path / RUN).exists()

    def describe(self, run: Mapping[str, Any]) -> None:
        """Write ``run.json``: configuration, command, budgets, baseline, one-time costs."""
        _write(self.path / RUN, run)

    def keep(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file of the run's own."""
        _write(self.path / name, content)

    def write(self, record: TrialRecord) -> TrialRecord:
        """Keep a record; an earlier one of the same trial is replaced, whatever its file is called.

        What the trial printed goes to a file of its own. The record returned, as written, names that file and has the
        last lines only, or none where all went well.
        """
        trial_id = record.trial_id
        path = self.path / RECORDS / f"{trial_id}.json"
        if record.log:
            record = self._with_log_file(record, f"{LOGS}/{trial_id}.txt")
        _write(path, record_to_json(record))
        self._drop_others(trial_id, path)
        return record

    def _with_log_file(self, record: TrialRecord, name: str) -> TrialRecord:
        measurements = dict(record.measurements)
        well = (
            record.outcome in (Outcome.OK, Outcome.UNSUPPORTED)
            and "anatomy_missing" not in measurements
        )
        with contextlib.suppress(
            OSError
        ):  # the record matters more, and finds out itself what the disk has
            (self.path / LOGS).mkdir(exist_ok=True)
            with written_beside(self.path / name) as partial:
                partial.write_text(record.log)
            measurements["log_file"] = name
        return dataclasses.replace(
            record, log="" if well else record.log[-LAST_LINES:], measurements=measurements
        )

    def remove(self, trial_id: str) -> None:
        """Forget a trial, because it is going to be repeated or is no longer planned."""
        path = self.path / RECORDS / f"{trial_id}.json"
        path.unlink(missing_ok=True)
        self._drop_others(trial_id, path)

    def records(self) -> dict[str, TrialRecord]:
        """Every readable record by trial id, the latest; what is torn or foreign is listed in ``unreadable``."""
        found: dict[str, TrialRecord] = {}
        self.unreadable = []
        for path in record_files(self.path):
            record = read_record(path)
            if record is None:
                self.unreadable.append(path)
                continue
            trial_id = record.trial_id
            self._files.setdefault(trial_id, set()).add(path)
            if trial_id not in found or found[trial_id].started_at < record.started_at:
                found[trial_id] = record
        return found

    def _drop_others(self, trial_id: str, path: Path) -> None:
        for other in self._files.pop(trial_id, set()) - {path}:
            other.unlink(missing_ok=True)


def _held(lock: TextIO, kind: int = fcntl.LOCK_EX, *, after_seconds: float = 0.0) -> bool:
    """Whether the lock is ours now; it is until its file is closed."""
    time.sleep(after_seconds)
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(path: Path, content: Mapping[str, Any]) -> None:
    try:
        with written_beside(path) as partial, open(partial, "w") as file:
            file.write(json.dumps(content))  # in C; json.dump is not
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RunFolderError(
            f"cannot write {path}: {error.strerror or error}; what was written before is whole"
        ) from error
