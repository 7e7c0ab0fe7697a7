"""A sweep followed from another terminal: its progress, read from the run folder alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.text import Text

from jobs.record import Outcome, TrialRecord
from orchestrator.running.progress import Progress
from orchestrator.storage.record_reader import read_record
from orchestrator.storage.run_folder import RunFolder
from orchestrator.storage.run_metadata import Run, read_run, record_files

_GLANCES_A_SECOND = 1.0


def follow(
    path: Path, *, to_stderr: bool = False, wait: Callable[[float], None] = time.sleep
) -> None:
    """Print a run's progress until its driver lets go of the folder; at once where nobody holds it.

    A line a trial, and in a terminal a last line that says where the sweep stands. Raises UnreadableRunError.
    """
    folder = RunFolder(path)
    with Console(stderr=to_stderr).status("") as line:
        view = _View(
            path, sys.stderr if to_stderr else sys.stdout
        )  # in a terminal, by now rich's own
        while True:
            running = folder.in_use()  # asked first: what is written before the end is then read
            view.look()
            line.update(Text(view.progress.status()))
            if not running:
                break
            wait(1 / _GLANCES_A_SECOND)
    view.progress.say(view.progress.status())
    if not view.run.finished:
        view.progress.say(
            "-- the sweep has ended and not finished; the same command with --resume continues it"
        )


class _View:
    """What has been read of the folder so far."""

    def __init__(self, path: Path, stream: TextIO) -> None:
        self._path, self._stream = path, stream
        self._begin(read_run(path))

    def _begin(self, run: Run) -> None:
        self.run, self._seen, self._first = run, set[tuple[str, int]](), True
        self.progress = Progress(
            run.planned,
            1,
            run.axes,
            baseline=run.baseline,
            stream=self._stream,
            clock=time.time,
            began=run.started_at,
        )

    def look(self) -> None:
        """Read what is new, and print a line for every trial that has ended since the last look."""
        run = read_run(self._path)
        if run.started_at != self.run.started_at:  # the folder's earlier run was read
            self._begin(run)
        self.run = run
        for record in sorted(
            self._new(), key=lambda record: record.started_at + record.slot_seconds
        ):
            self._tell(record)
        self._first = False

    def _tell(self, record: TrialRecord) -> None:
        if record.outcome is Outcome.UNSUPPORTED and not record.started_at:
            return  # ruled out when the sweep was planned
        if record.started_at < self.run.started_at:
            self.progress.settled(record)
        elif self._first:
            self.progress.met(record)
        else:
            self.progress.ended(record)

    def _new(self) -> Iterator[TrialRecord]:
        for path in record_files(self._path):
            try:
                version = (path.name, path.stat().st_mtime_ns)
            except FileNotFoundError:  # taken away to be measured again
                continue
            if version not in self._seen and (record := read_record(path)) is not None:
                self._seen.add(version)
                yield record
