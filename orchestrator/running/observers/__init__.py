"""What watches a sweep: progress, logs, metrics and experiment loggers.

progress.py    lines in the terminal, and the last one: what runs now
event_log.py   log.jsonl, a line per event
prometheus.py  metrics, through Ray's exporter
loggers/       TensorBoard, MLflow, Weights & Biases
"""

from jobs.record import TrialRecord
from jobs.spec import TrialSpec


class Observer:
    """What hears of every event. A subclass overrides the methods that it needs, none of which may
    raise, because a log on a full disk would end the sweep."""

    def started(self, spec: TrialSpec) -> None:
        """A slot has begun a trial. A trial that lost its slot is begun again."""

    def completed(self, record: TrialRecord, waits: bool) -> TrialRecord | None:
        """The record of a trial that ended, with what the trial could not know. None if that is not
        known yet, unless it ``waits``."""
        return record

    def ended(self, record: TrialRecord, *, measured: bool) -> None:
        """A trial has its record. ``measured``: it ran now; else it was kept, or did not run."""

    def message(self, text: str) -> None:
        """A sentence about the sweep that its user should know."""

    def closed(self) -> None:
        """The session has ended; nothing more comes."""
