"""A sweep's figures for Prometheus, through Ray's own exporter: trials by outcome, GPU time, what still waits."""

from __future__ import annotations

from ray.util.metrics import Counter, Gauge

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec

_TAGS = ("sweep",)


class Metrics:
    """A watcher. ``saved`` is what trials that the search skipped would have taken at the mean of those measured."""

    def __init__(self, sweep: str, planned: int) -> None:
        self._tags = {"sweep": sweep}
        self._trials = Counter(
            "orchestrator_trials", "Trials that have their record", (*_TAGS, "outcome")
        )
        self._spent = Counter(
            "orchestrator_slot_seconds", "Slot seconds that trials took", (*_TAGS, "gpu_model")
        )
        self._saved = Gauge(
            "orchestrator_slot_seconds_saved", "Of the whole grid's, by the search's skips", _TAGS
        )
        self._waiting = Gauge(
            "orchestrator_trials_waiting", "Planned trials without a record", _TAGS
        )
        self._running = Gauge("orchestrator_trials_running", "Trials given out", _TAGS)
        self._planned, self._settled, self._out = planned, 0, set[str]()
        self._measured, self._seconds, self._skipped = 0, 0.0, 0
        self._publish()

    def started(self, spec: TrialSpec) -> None:
        self._out.add(spec.trial_id)
        self._publish()

    def ended(self, record: TrialRecord, *, measured: bool) -> None:
        self._out.discard(record.trial_id)
        self._settled += 1
        self._trials.inc(1, {**self._tags, "outcome": record.outcome.value})
        if measured:
            self._measured += 1
            self._seconds += record.slot_seconds
            model = str(record.environment.get("gpu_model") or "cpu")
            if record.slot_seconds > 0:
                self._spent.inc(record.slot_seconds, {**self._tags, "gpu_model": model})
        elif record.outcome is Outcome.SKIPPED and record.rule not in (
            "time_budget",
            "interrupted",
            "unwritable",
        ):
            self._skipped += 1
        self._publish()

    def _publish(self) -> None:
        mean = self._seconds / self._measured if self._measured else 0.0
        self._saved.set(mean * self._skipped, self._tags)
        self._waiting.set(max(0, self._planned - self._settled - len(self._out)), self._tags)
        self._running.set(len(self._out), self._tags)
