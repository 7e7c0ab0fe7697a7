"""The log of a sweep: ``log.jsonl`` in its run folder, one JSON object per line."""

import contextlib
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.running.observers import Observer
from orchestrator.storage.layout import open_regular
from orchestrator.storage.run_folder import RunFolder

LOG = "log.jsonl"


class EventLog(Observer):
    """Writes a line for every message, and for a trial that ``started``, ``ended`` (measured in
    this session) or ``settled`` (kept or skipped), while the folder is ours."""

    def __init__(self, folder: RunFolder, *, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock

    def started(self, spec: TrialSpec) -> None:
        self._write("started", trial_id=spec.trial_id, choices=dict(spec.choices))

    def ended(self, record: TrialRecord, *, measured: bool) -> None:
        values = {
            "outcome": record.outcome.value,
            "reason": record.reason,
            "rule": record.rule,
            "phase": record.phase,
            "slot_seconds": record.slot_seconds,
            "gpu_model": record.environment.get("gpu_model"),
            "gpu_uuid": record.measurements.get("gpu_uuid"),
            "node": record.provenance.node,
            "log_file": record.provenance.log_file,
        }
        # Empty values are left out, because people read these lines, too.
        fields = {name: value for name, value in values.items() if value not in ("", None, 0.0)}
        event = "ended" if measured else "settled"
        self._write(event, trial_id=record.trial_id, **fields)

    def message(self, text: str) -> None:
        self._write("message", text=text)

    def _write(self, event: str, **fields: Any) -> None:
        if not self._folder.is_ours():
            return
        now = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "event": event, **fields})
        # A full disk must not end the sweep because of its log.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with contextlib.suppress(OSError), open_regular(self._folder.path / LOG, flags) as file:
            file.write(f"{line}\n".encode())
