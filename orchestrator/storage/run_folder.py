"""Writes the run folder, of one driver at a time: a file per trial, each in one atomic step."""

import contextlib
import itertools
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from jobs.record import SCHEMA_VERSION, Outcome, TrialRecord, with_provenance
from jobs.spec import to_json
from orchestrator.storage import folder_lock, layout
from orchestrator.storage.folder_lock import FolderLock
from orchestrator.storage.layout import LOGS, RECORDS, RUN, SUPERSEDED, read_regular, written_beside
from orchestrator.storage.record_reader import find_records, read_record
from orchestrator.storage.redaction import redacted
from orchestrator.storage.run_metadata import UnreadableRunError, read_run

_TABLES = (layout.TRIALS, layout.STEPS, layout.ANATOMY, layout.FRONTIER)


class Superseded:
    """Moves files of a run folder to a new ``superseded/TIME``, which can be read as a run."""

    def __init__(self, run_folder: Path) -> None:
        self._run_folder = run_folder
        self._run_json: bytes | None = None
        self.path: Path | None = None
        """The folder with the moved files; None while there are none."""
        self.tables = 0
        """Number of tables that were moved."""

    def remember_run(self) -> None:
        """Keep the content of the earlier run's ``run.json``, before the new run replaces it."""
        if self._run_json is None:
            with contextlib.suppress(OSError):
                self._run_json = read_regular(self._run_folder / RUN)

    def take_record(self, path: Path) -> None:
        """Move a record's file aside, and its trial's log. Raises OSError."""
        folder = self.folder()
        _move(path, folder / RECORDS)
        log = self._run_folder / LOGS / f"{path.stem}.txt"
        if log.is_file():
            _move(log, folder / LOGS)

    def take_tables(self) -> None:
        """Move the tables aside, because they hold rows whose records are gone. Raises OSError."""
        for name in _TABLES:
            table = self._run_folder / name
            if table.is_file():
                _move(table, self.folder())
                self.tables += 1

    def folder(self) -> Path:
        """The folder to move files to, with the run.json of the earlier run. Made if missing."""
        if self.path is None:
            self.remember_run()
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            path = _free(self._run_folder / SUPERSEDED / stamp)
            path.mkdir(parents=True)
            if self._run_json is not None:
                (path / RUN).write_bytes(self._run_json)
            self.path = path
        return self.path


def _move(path: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.move(path, _free(folder / path.name))


def _free(path: Path) -> Path:
    """``path``, or if it exists the first free path with a number, so that nothing is replaced."""
    numbered = (path.with_name(f"{path.stem}-{n}{path.suffix}") for n in itertools.count(2))
    return next(free for free in itertools.chain([path], numbered) if not free.exists())


_LOCK = "lock"


class RunFolderError(RuntimeError):
    """The run folder cannot be written: no room, no permission, or something else in its place."""


class RunFolderBusyError(RunFolderError):
    """Another driver is writing to this run folder."""


class RunFolderLostError(RunFolderError):
    """The run folder, or its lock, was moved, deleted or replaced while this process held it."""


class RunFolder:
    """A run's records on disk. Each file is moved into place, so that none is ever incomplete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.superseded = Superseded(path)
        """Moves records aside that are replaced by others."""
        self._lock: FolderLock | None = None
        self.unreadable: list[Path] = []
        """Files among the records that are not records of this version; they are left alone."""

    @contextlib.contextmanager
    def locked(self) -> Iterator[Self]:
        """Hold the folder for this process. A new folder is removed again if nothing was written.
        Raises RunFolderBusyError if another process holds it, and RunFolderError if it cannot be
        locked."""
        is_new = not self.path.exists()
        try:
            (self.path / RECORDS).mkdir(parents=True, exist_ok=True)
            lock = folder_lock.acquire(self.path / _LOCK)
        except folder_lock.NotLockableError as error:
            raise RunFolderError(f"cannot lock {error.filename}: {error.strerror}") from error
        except OSError as error:
            taken = f"{error.filename} is no folder; move it away"
            reason = taken if isinstance(error, FileExistsError) else error.strerror or error
            raise RunFolderError(f"cannot write to {self.path}: {reason}") from error
        if lock is None:
            raise RunFolderBusyError(f"{self.path} is in use by another running sweep")
        self._lock = lock
        try:
            yield self
        finally:
            self._lock = None
            if is_new and lock.is_ours():
                self._remove_if_empty()
            lock.release()

    def _remove_if_empty(self) -> None:
        with contextlib.suppress(OSError):
            if {path.name for path in self.path.iterdir()} <= {RECORDS, _LOCK}:
                (self.path / RECORDS).rmdir()  # fails if there are records
                (self.path / _LOCK).unlink()
                self.path.rmdir()

    def in_use(self) -> bool:
        """Whether a driver holds the folder now."""
        return folder_lock.is_held(self.path / _LOCK)

    def is_ours(self) -> bool:
        """Whether this process may write: the path leads to the lock that it holds, if any."""
        return self._lock is None or self._lock.is_ours()

    def check_ours(self) -> None:
        """Raises RunFolderLostError if another process may have taken the folder over."""
        if not self.is_ours():
            raise RunFolderLostError(
                f"{self.path} was moved, deleted or replaced while this sweep ran: nothing more is"
                " written there; put it back and continue with --resume"
            )

    def exists(self) -> bool:
        """Whether a run was started here."""
        return (self.path / RUN).exists()

    def describe(self, run: Mapping[str, Any]) -> None:
        """Write ``run.json`` without its secrets, because the folder is shared. An earlier one that
        cannot be read, because it is damaged or of a newer version, is moved aside."""
        self.check_ours()
        self.superseded.remember_run()
        try:
            read_run(self.path)
        except UnreadableRunError:
            with _named_errors(self.path):
                self.superseded.folder()
        _write(self.path / RUN, {**redacted(run), "schema_version": SCHEMA_VERSION})

    def keep(self, name: str, content: Mapping[str, Any]) -> None:
        self.check_ours()
        _write(self.path / name, content)

    def write(self, record: TrialRecord) -> TrialRecord:
        """Write a record, and return it as written. An earlier measurement is moved aside first.
        What the trial printed goes to a log file; the record keeps its end, or nothing if all went
        well."""
        self.check_ours()
        path = self._path_of(record.trial_id)
        self._set_aside_replaced(path, record)
        # The log file comes first, because the record names it.
        if record.provenance.log:
            record = self._with_log_file(record)
        _write(path, to_json(record))
        return record

    def rename(self, record: TrialRecord, trial_id: str) -> TrialRecord:
        """Write a record whose trial was called ``trial_id``, and then drop the old name's file."""
        if record.trial_id == trial_id:
            return record
        written = self.write(record)
        path = self._path_of(trial_id)
        content = read_record(path)
        # Another record may have been written under the old name since.
        if content is not None and content.started_at == record.started_at:
            path.unlink()
        return written

    def _with_log_file(self, record: TrialRecord) -> TrialRecord:
        name = f"{LOGS}/{record.trial_id}.txt"
        written = ""
        # A record without its log is still worth writing. An error that affects the record, too,
        # shows when the record is written.
        with contextlib.suppress(OSError):
            (self.path / LOGS).mkdir(exist_ok=True)
            with written_beside(self.path / name) as partial:
                partial.write_text(record.provenance.log)
            written = name
        # The record itself keeps the end of the log only if there is something to explain.
        ended_well = record.outcome in (Outcome.OK, Outcome.UNSUPPORTED)
        excerpt = record.provenance.log[-4000:]
        if ended_well and "anatomy_missing" not in record.measurements:
            excerpt = ""
        return with_provenance(record, log=excerpt, log_file=written)

    def set_aside(self, trial_id: str) -> None:
        self.check_ours()
        path = self._path_of(trial_id)
        with _named_errors(path):
            if path.is_file():
                self.superseded.take_record(path)

    def set_tables_aside(self) -> None:
        """Move the tables aside, because they hold rows of records that were moved."""
        self.check_ours()
        with _named_errors(self.path):
            self.superseded.take_tables()

    def records(self) -> dict[str, TrialRecord]:
        """Every readable record by trial id; ``unreadable`` gets others. Raises RunFolderError."""
        try:
            contents = find_records(self.path)
        except UnreadableRunError as error:
            raise RunFolderError(f"cannot read the earlier records: {error}") from None
        self.unreadable = list(contents.unreadable)
        return {record.trial_id: record for record in contents.records}

    def _path_of(self, trial_id: str) -> Path:
        return self.path / RECORDS / f"{trial_id}.json"

    def _set_aside_replaced(self, path: Path, record: TrialRecord) -> None:
        """Move aside another measurement, or a file that is no record of this version."""
        if not path.is_file():
            return
        earlier = read_record(path)
        if earlier is not None:
            # The same attempt written again, or a trial that never ran: nothing is lost.
            is_measurement = earlier.outcome.is_final and earlier.started_at > 0
            if not is_measurement or earlier.started_at == record.started_at:
                return
        with _named_errors(path):
            self.superseded.take_record(path)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    with _named_errors(path), written_beside(path) as partial, open(partial, "w") as file:
        file.write(json.dumps(content))  # faster than json.dump, which is not in C
        # The content must be on disk before the move, in case the machine loses power.
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise RunFolderError(
            f"cannot write {path}: {reason}; earlier files are complete"
        ) from error
