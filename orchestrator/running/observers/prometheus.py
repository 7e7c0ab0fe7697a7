"""A sweep's metrics for Prometheus, through Ray's own exporter."""

from collections.abc import Callable
from typing import Any

from ray.util.metrics import Counter, Gauge

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.running.close_reason import CloseReason
from orchestrator.running.observers import Observer

_GAUGES = {
    "slot_seconds_saved": "Slot seconds of the trials that the search skipped, at the mean of those"
    " measured",
    "trials_waiting": "Planned trials without a record",
    "trials_running": "Trials on slots",
}
_CUT_SHORT = {reason.value for reason in CloseReason}
"""Rules of trials that were skipped because the sweep ended, not because of what it measured."""


class Metrics(Observer):
    """An observer that counts trials by outcome, slot seconds, and trials that wait or run."""

    def __init__(
        self,
        sweep: str,
        planned: int,
        *,
        counter: Callable[..., Any] = Counter,
        gauge: Callable[..., Any] = Gauge,
    ) -> None:
        self._tags = {"sweep": sweep}
        self._trials = counter(
            "orchestrator_trials", "Trials that have their record", ("sweep", "outcome")
        )
        self._slot_seconds = counter(
            "orchestrator_slot_seconds", "Slot seconds of trials", ("sweep", "gpu_model")
        )
        self._saved, self._waiting, self._running = (
            gauge(f"orchestrator_{name}", about, ("sweep",)) for name, about in _GAUGES.items()
        )
        self._planned = planned
        self._ended_count = 0
        self._started_ids: set[str] = set()
        self._measured_count = 0
        self._measured_seconds = 0.0
        self._skipped_count = 0
        self._publish()

    def started(self, spec: TrialSpec) -> None:
        self._started_ids.add(spec.trial_id)
        self._publish()

    def ended(self, record: TrialRecord, *, measured: bool) -> None:
        self._started_ids.discard(record.trial_id)
        self._ended_count += 1
        self._trials.inc(1, {**self._tags, "outcome": record.outcome.value})
        if measured:
            self._measured_count += 1
            self._measured_seconds += record.slot_seconds
            gpu_model = str(record.environment.get("gpu_model") or "cpu")
            if record.slot_seconds > 0:
                self._slot_seconds.inc(record.slot_seconds, {**self._tags, "gpu_model": gpu_model})
        elif record.outcome is Outcome.SKIPPED and record.rule not in _CUT_SHORT:
            self._skipped_count += 1
        self._publish()

    def _publish(self) -> None:
        # It is assumed that a skipped trial would have taken the mean time of a measured trial.
        mean = self._measured_seconds / max(1, self._measured_count)
        running = len(self._started_ids)
        self._saved.set(mean * self._skipped_count, self._tags)
        self._waiting.set(max(0, self._planned - self._ended_count - running), self._tags)
        self._running.set(running, self._tags)
