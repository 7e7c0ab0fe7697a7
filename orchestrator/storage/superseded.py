"""Superseded records: moved aside into a run of their own below the run folder, never deleted."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from orchestrator.storage.layout import (
    ANATOMY,
    FRONTIER,
    LOGS,
    RECORDS,
    RUN,
    STEPS,
    SUPERSEDED,
    TRIALS,
)

_TABLES = (TRIALS, STEPS, ANATOMY, FRONTIER)


class Superseded:
    """Takes files out of a run folder into ``superseded/TIME``, which is a readable run itself.

    The folder is made with the first file. ``clock`` gives Unix time in seconds.
    """

    def __init__(self, run_folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._run_folder = run_folder
        self._clock = clock
        self._run_json: bytes | None = None
        self.path: Path | None = None
        """Where the files went; None while there are none."""
        self.records = 0
        """Record files that were moved aside."""
        self.tables = 0
        """Tables that were moved aside."""

    def remember_run(self) -> None:
        """Keep what ``run.json`` says now: the earlier run's, before today's takes its place."""
        if self._run_json is None:
            with contextlib.suppress(OSError):
                self._run_json = (self._run_folder / RUN).read_bytes()

    def take_record(self, path: Path) -> None:
        """Move a record's file aside, and its trial's log. Raises OSError."""
        folder = self._folder()
        _move(path, folder / RECORDS)
        self.records += 1
        log = self._run_folder / LOGS / f"{path.stem}.txt"
        if log.is_file():
            _move(log, folder / LOGS)

    def take_tables(self) -> None:
        """Move the tables aside: they hold rows whose records are gone. Raises OSError."""
        for name in _TABLES:
            table = self._run_folder / name
            if table.is_file():
                _move(table, self._folder())
                self.tables += 1

    def _folder(self) -> Path:
        """The folder for what this driver moves aside, with the run.json of the earlier run."""
        if self.path is None:
            self.remember_run()
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self._clock()))
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
    """``path``, or with a number if it is taken: nothing that was moved aside is replaced."""
    candidate = path
    number = 2
    while candidate.exists():
        candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
        number += 1
    return candidate
