"""Who wants to know what becomes of a sweep's trials: the interface, and a log of one JSON object a line."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from jobs.record import TrialRecord
from jobs.spec import TrialSpec

LOG = "log.jsonl"


class Watcher(Protocol):
    """Told by the session. It must not raise: no sweep ends because its log cannot grow."""

    def started(self, spec: TrialSpec) -> None:
        """A trial was given out."""

    def ended(self, record: TrialRecord, *, measured: bool) -> None:
        """A trial has its record: ``measured`` now, or kept from an earlier run, or skipped."""


class EventLog:
    """``log.jsonl`` of a run folder: time, event and trial id on every line, and what a search in it would ask for."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = folder / LOG, clock

    def started(self, spec: TrialSpec) -> None:
        self._write("started", spec)

    def ended(self, record: TrialRecord, *, measured: bool) -> None:
        told = {
            "outcome": record.outcome.value,
            "reason": record.reason,
            "rule": record.rule,
            "phase": record.phase,
            "slot_seconds": record.slot_seconds,
            "gpu_model": record.environment.get("gpu_model"),
            **{name: record.measurements.get(name) for name in ("node", "gpu_uuid", "log_file")},
        }
        known = {name: value for name, value in told.items() if value not in ("", None, 0.0)}
        self._write("ended" if measured else "settled", record.spec, **known)

    def _write(self, event: str, spec: TrialSpec, **told: Any) -> None:
        at = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        line = {"time": at, "event": event, "trial_id": spec.trial_id, **told}
        if event == "started":
            line["choices"] = dict(spec.choices)
        with contextlib.suppress(OSError), open(self._path, "a") as file:
            file.write(json.dumps(line) + "\n")
