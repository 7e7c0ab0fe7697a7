"""The run folder as results reads it: the names of its files, what was run, and the records so far."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter
from pydantic_core import from_json

from jobs.record import TrialRecord
from jobs.spec import Choice
from orchestrator.storage.record_reader import read_record

RUN = "run.json"
RECORDS = "records"
LOGS = "logs"
TRIALS = "trials.parquet"
STEPS = "steps.parquet"
ANATOMY = "anatomy.parquet"
FRONTIER = "frontier.parquet"
REPORT_HTML = "report.html"
REPORT_MARKDOWN = "report.md"
PICTURE = "frontier.png"


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What was run: the part of a report that no trial knows. Everything may be missing from an old run."""

    name: str = ""
    command: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    budgets: tuple[int, ...] = ()
    """Memory budgets in bytes."""
    baseline: Mapping[str, Choice] = field(default_factory=dict)
    """Axis -> the variant that techniques are compared with."""
    one_time_costs: Mapping[str, Any] = field(default_factory=dict)
    """What was paid once per node, outside every trial's time (seconds where a number)."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """What the search says of itself (see ``Search.account``); empty where it measured everything."""
    notes: tuple[str, ...] = ()
    """What is to be known of the machines: sentences."""
    started_at: float = 0.0
    """Unix time, seconds."""
    planned: int | None = None
    """Trials to be measured; None where the search makes them as it goes."""
    axes: tuple[str, ...] = ()
    """The axes in play, in the order of the file."""
    finished: bool = True
    """Whether every trial has its row; False while a sweep runs, and where its driver was killed."""

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """A run from ``run.json``; foreign keys are left alone, missing ones take their defaults. Raises ValueError."""
        given = {key: value for key, value in raw.items() if value is not None}
        checked: Self = TypeAdapter(cls).validate_python(given)
        if checked.search:
            _ACCOUNT.validate_python(dict(checked.search))
        return checked


@dataclass(frozen=True, kw_only=True, slots=True)
class _Account:
    """What a page needs to know of a search, where there is anything to say of it."""

    kind: str
    planned: int
    measured: int
    skipped: Mapping[str, int]
    audit: Mapping[str, Any] | None = None


_ACCOUNT = TypeAdapter(_Account)


class UnreadableRunError(ValueError):
    """A file of the run folder that is torn or foreign; the text says which."""


def read_run(run_folder: Path) -> Run:
    """The folder's ``run.json``, or an anonymous run named after the folder. Raises UnreadableRunError."""
    path = run_folder / RUN
    try:
        raw = from_json(path.read_bytes()) if path.exists() else {}
        return Run.from_json({**raw, "name": raw.get("name") or run_folder.resolve().name})
    except (AttributeError, TypeError, ValueError):
        raise UnreadableRunError(
            f"{path} is torn or not of this program; moved away, it is done without"
        ) from None


def read_records(run_folder: Path) -> list[TrialRecord]:
    """Every finished trial's record, oldest first, those that never started last.

    A torn or foreign file is passed over, as the sweep does, which names it.
    """
    found = [
        record for path in record_files(run_folder) if (record := read_record(path)) is not None
    ]
    return sorted(found, key=lambda record: (record.started_at == 0, record.started_at))


def record_files(run_folder: Path) -> list[Path]:
    """What lies among the records, by name."""
    return sorted((run_folder / RECORDS).glob("*.json"))


@contextlib.contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A place to write a file's new content, moved to ``path`` when all is well: no reader ever meets half a file."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()  # a full disk needs the room
        raise
