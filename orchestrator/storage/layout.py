"""The names of the run folder's files, and how a file is replaced in one step."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

RUN = "run.json"
RECORDS = "records"
LOGS = "logs"
SUPERSEDED = "superseded"
TRIALS = "trials.parquet"
STEPS = "steps.parquet"
ANATOMY = "anatomy.parquet"
FRONTIER = "frontier.parquet"
REPORT_HTML = "report.html"
REPORT_MARKDOWN = "report.md"
FRONTIER_PLOT = "frontier.png"
RESULT = "result.json"


def record_files(run_folder: Path) -> list[Path]:
    """The records' files, by name; none without a folder. Raises OSError if it cannot be listed."""
    folder = run_folder / RECORDS
    # A path that is no run folder has no records. The reader of the tables then reports it.
    if not os.path.isdir(run_folder):
        return []
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(folder / name for name in names if name.endswith(".json"))


@contextlib.contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A temporary path for a file's new content, moved to ``path`` at the end unless there was an
    error."""
    # In the same folder, because only a move within one filesystem is atomic. The process id keeps
    # two writers apart.
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        try:
            partial.replace(path)
        except OSError as error:  # named after the file that the user knows
            raise OSError(error.errno, error.strerror, str(path)) from None
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()  # frees the space on a full disk
        raise
