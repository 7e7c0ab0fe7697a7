"""The run folder as the driver writes it: one atomic file per finished trial, and one driver at a
time.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from jobs.record import SCHEMA_VERSION, Outcome, TrialRecord, delivered, record_to_json
from orchestrator.storage.layout import LOGS, RECORDS, RUN, written_beside
from orchestrator.storage.record_reader import find_records

_LOCK = "lock"
_LOCK_RETRY_SECONDS = 0.1
LAST_LOG_CHARACTERS = 4000
"""Characters of a trial's output that its record keeps, where it did not end well."""


class RunFolderError(RuntimeError):
    """The run folder cannot be written: no room, no permission, or something else in its place."""


class RunFolderBusyError(RunFolderError):
    """Another driver is writing to this run folder."""


class RunFolder:
    """A run's records on disk.

    Each is written beside and moved into place: a killed driver leaves no half file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unreadable: list[Path] = []
        """Files among the records that are not records of this version; they are left alone."""
        self._files: dict[str, set[Path]] = {}
        """Trial -> the files that hold it.

        An earlier version gave a trial, and its file, another name.
        """

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process.

        Raises RunFolderBusyError if another one does, else RunFolderError.
        """
        try:
            # The lock file lies in the folder, so the folder comes first.
            (self.path / RECORDS).mkdir(parents=True, exist_ok=True)
            lock = open(self.path / _LOCK, "a")  # noqa: SIM115
        except OSError as error:
            reason = error.strerror or error
            raise RunFolderError(f"cannot write to {self.path}: {reason}") from error
        with lock:
            if not _try_lock(lock):
                time.sleep(_LOCK_RETRY_SECONDS)  # ``in_use`` holds the lock for a moment
                if not _try_lock(lock):
                    raise RunFolderBusyError(f"{self.path} is in use by another running sweep")
            yield

    def in_use(self) -> bool:
        """Whether a driver holds the folder now."""
        try:
            lock = open(self.path / _LOCK)  # noqa: SIM115
        except OSError:
            return False
        with lock:
            return not _try_lock(lock, fcntl.LOCK_SH)

    def exists(self) -> bool:
        """Whether a run was started here."""
        return (self.path / RUN).exists()

    def describe(self, run: Mapping[str, Any]) -> None:
        """Write ``run.json``: configuration, command, budgets, baseline, one-time costs."""
        _write(self.path / RUN, {**run, "schema_version": SCHEMA_VERSION})

    def keep(self, name: str, content: Mapping[str, Any]) -> None:
        """Write another JSON file of the run."""
        _write(self.path / name, content)

    def write(self, record: TrialRecord) -> TrialRecord:
        """Write a record, in place of any earlier one of the same trial; returns the record as
        written.

        What the trial printed goes to a log file. The record keeps its last characters, or nothing
        if all went well.
        """
        path = self._path_of(record.trial_id)
        # The text first: the record names its file.
        if record.delivery.log:
            record = self._with_log_file(record)
        _write(path, record_to_json(record))
        self._remove_other_files(record.trial_id, path)
        return record

    def _with_log_file(self, record: TrialRecord) -> TrialRecord:
        name = f"{LOGS}/{record.trial_id}.txt"
        written = ""
        # Without a log the record is still worth writing; whether the disk takes that, it finds out
        # itself.
        with contextlib.suppress(OSError):
            (self.path / LOGS).mkdir(exist_ok=True)
            with written_beside(self.path / name) as partial:
                partial.write_text(record.delivery.log)
            written = name
        # The record keeps an excerpt only where there is something to explain.
        ended_well = record.outcome in (Outcome.OK, Outcome.UNSUPPORTED)
        excerpt = record.delivery.log[-LAST_LOG_CHARACTERS:]
        if ended_well and "anatomy_missing" not in record.measurements:
            excerpt = ""
        return delivered(record, log=excerpt, log_file=written)

    def remove(self, trial_id: str) -> None:
        """Remove a trial's record, because it is going to be repeated or is no longer planned."""
        path = self._path_of(trial_id)
        path.unlink(missing_ok=True)
        self._remove_other_files(trial_id, path)

    def records(self) -> dict[str, TrialRecord]:
        """Every readable record by trial id, the latest of each.

        ``unreadable`` lists the other files.
        """
        contents = find_records(self.path)
        self.unreadable = list(contents.unreadable)
        latest: dict[str, TrialRecord] = {}
        for path, record in contents.records:
            self._files.setdefault(record.trial_id, set()).add(path)
            # Two files hold one trial where an earlier version gave it another name.
            earlier = latest.get(record.trial_id)
            if earlier is None or earlier.started_at < record.started_at:
                latest[record.trial_id] = record
        return latest

    def _path_of(self, trial_id: str) -> Path:
        return self.path / RECORDS / f"{trial_id}.json"

    def _remove_other_files(self, trial_id: str, path: Path) -> None:
        for other in self._files.pop(trial_id, set()) - {path}:
            other.unlink(missing_ok=True)


def _try_lock(lock: TextIO, kind: int = fcntl.LOCK_EX) -> bool:
    """Whether the lock is ours now; it is until its file is closed."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(path: Path, content: Mapping[str, Any]) -> None:
    try:
        with written_beside(path) as partial, open(partial, "w") as file:
            file.write(json.dumps(content))  # in C; json.dump is not
            # A machine that loses power after the move must find the content, too.
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        reason = error.strerror or error
        raise RunFolderError(
            f"cannot write {path}: {reason}; earlier files are complete"
        ) from error
