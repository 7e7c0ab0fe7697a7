"""Moves superseded records aside, into a folder below the run folder. Nothing is deleted."""

import contextlib
import itertools
import shutil
import time
from pathlib import Path

from orchestrator.storage import layout
from orchestrator.storage.layout import LOGS, RECORDS, RUN, SUPERSEDED
from orchestrator.storage.regular_file import read_regular

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
