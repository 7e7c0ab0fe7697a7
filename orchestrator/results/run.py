"""The run folder as results reads it: the names of its files, what was run, and the records so far."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from jobs.record import TrialRecord, record_from_json
from jobs.spec import Choice

RUN = "run.json"
RECORDS = "records"
TRIALS = "trials.parquet"
STEPS = "steps.parquet"
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
    started_at: float = 0.0
    """Unix time, seconds."""

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """A run from ``run.json``; foreign keys are left alone, missing ones take their defaults."""
        return cls(
            name=str(raw.get("name") or ""),
            command=str(raw.get("command") or ""),
            config=raw.get("config") or {},
            budgets=tuple(int(budget) for budget in raw.get("budgets") or ()),
            baseline=raw.get("baseline") or {},
            one_time_costs=raw.get("one_time_costs") or {},
            search=raw.get("search") or {},
            started_at=float(raw.get("started_at") or 0.0),
        )


def read_run(run_folder: Path) -> Run:
    """The folder's ``run.json``, or an anonymous run named after the folder."""
    path = run_folder / RUN
    raw = json.loads(path.read_text()) if path.exists() else {}
    return Run.from_json({**raw, "name": raw.get("name") or run_folder.resolve().name})


def read_records(run_folder: Path) -> list[TrialRecord]:
    """Every finished trial's record, oldest first, those that never started last.

    A torn or foreign file is passed over, as the sweep does, which names it.
    """
    records: list[TrialRecord] = []
    for path in sorted((run_folder / RECORDS).glob("*.json")):
        with contextlib.suppress(KeyError, TypeError, ValueError):  # a UnicodeDecodeError is a ValueError
            records.append(record_from_json(json.loads(path.read_text())))
    return sorted(records, key=lambda record: (record.started_at == 0, record.started_at))
