"""Watches a sweep from another terminal. Its progress is read from the run folder only."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.text import Text

from jobs.record import Outcome, TrialRecord
from orchestrator.reporting.terminal.safe_text import raw_stream, visible
from orchestrator.running.observers.progress import Progress
from orchestrator.storage.layout import record_files
from orchestrator.storage.record_reader import read_record
from orchestrator.storage.run_folder import RunFolder
from orchestrator.storage.run_metadata import RunMetadata, read_run


def watch(
    path: Path, *, to_stderr: bool = False, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Print a run's progress, a line per trial, while a driver runs. Raises UnreadableRunError."""
    folder = RunFolder(path)
    stream = "stderr" if to_stderr else "stdout"
    with Console(file=raw_stream(getattr(sys, stream))).status("") as status_line:
        # rich has replaced the streams in a terminal by now, to keep its line below the others.
        follower = _Follower(path, getattr(sys, stream))
        while True:
            is_running = folder.in_use()  # read first, so that the last look sees every record
            follower.look()
            status_line.update(Text(visible(follower.progress.status())))
            if not is_running:
                break
            sleep(1.0)
    follower.progress.closed()
    if not follower.run.finished:
        follower.progress.message(
            "the sweep has ended unfinished; the same command with --resume continues it"
        )


class _Follower:
    def __init__(self, path: Path, stream: TextIO) -> None:
        self._path = path
        self._stream = stream
        self._begin(read_run(path))

    def _begin(self, run: RunMetadata) -> None:
        self.run = run
        self._is_first_look = True
        self._files_read: set[tuple[str, int]] = set()
        """Name and time of writing, in nanoseconds."""
        self.progress = Progress(
            run.planned, run.axes, stream=self._stream, clock=time.time, began=run.started_at
        )

    def look(self) -> None:
        """Read new records, and print a line for each trial that has ended since the last look."""
        run = read_run(self._path)
        # If another sweep has begun in this folder, the counts begin again.
        if run.started_at != self.run.started_at:
            self._begin(run)
        self.run = run
        in_order = sorted(self._new_records(), key=lambda own: own.started_at + own.slot_seconds)
        for record in in_order:
            if record.outcome is Outcome.UNSUPPORTED and not record.started_at:
                continue  # ruled out when the sweep was planned
            measured = record.started_at >= self.run.started_at
            if measured and self._is_first_look:
                self.progress.count(record, measured=True)
            else:
                self.progress.ended(record, measured=measured)
        self._is_first_look = False

    def _new_records(self) -> Iterator[TrialRecord]:
        for path in record_files(self._path):
            try:
                version = (path.name, path.stat().st_mtime_ns)
            except FileNotFoundError:  # removed, because the trial is measured again
                continue
            if version not in self._files_read and (record := read_record(path)) is not None:
                self._files_read.add(version)
                yield record
