"""A sweep's metrics for Prometheus, on counters and gauges that remember."""

from collections.abc import Mapping

from jobs.record import Outcome, TrialRecord, skipped, with_provenance
from orchestrator.running.observers.prometheus import Metrics
from tests.conftest import build_tiny_spec

TRIALS = [build_tiny_spec(repeat=number) for number in range(5)]


class Metric:
    """Stands in for a counter or a gauge of Ray's."""

    def __init__(self, tag_keys: tuple[str, ...]) -> None:
        self._tag_keys = tag_keys
        self.values: dict[tuple[str, ...], float] = {}

    def inc(self, value: float, tags: Mapping[str, str]) -> None:
        key = tuple(tags[name] for name in self._tag_keys)
        self.values[key] = self.values.get(key, 0.0) + value

    def set(self, value: float, tags: Mapping[str, str]) -> None:
        self.values[tuple(tags[name] for name in self._tag_keys)] = value


class Exporter:
    """Makes metrics, and shows their values by name."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def __call__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> Metric:
        self._metrics[name] = Metric(tag_keys)
        return self._metrics[name]

    def __getitem__(self, name: str) -> dict[tuple[str, ...], float]:
        return self._metrics[f"orchestrator_{name}"].values


def ended(number: int, outcome: Outcome) -> TrialRecord:
    """A trial's record, two seconds long."""
    record = TrialRecord(spec=TRIALS[number], outcome=outcome, environment={"gpu_model": "H200"})
    return with_provenance(record, slot_seconds=2.0)


def test_metrics_count_trials_and_slot_seconds():
    shown = Exporter()
    metrics = Metrics("name", len(TRIALS), counter=shown, gauge=shown)
    metrics.ended(ended(0, Outcome.OK), measured=False)
    metrics.started(TRIALS[1])
    metrics.started(TRIALS[2])
    assert shown["trials_waiting"] == {("name",): 2}
    assert shown["trials_running"] == {("name",): 2}
    metrics.ended(ended(1, Outcome.OK), measured=True)
    metrics.ended(ended(2, Outcome.FAILED), measured=True)
    metrics.ended(skipped(TRIALS[3], "dominated", "slower"), measured=False)
    metrics.ended(skipped(TRIALS[4], "interrupted", "Ctrl-C"), measured=False)
    metrics.message("nothing to count")
    metrics.closed()
    outcomes = {("name", "ok"): 2, ("name", "failed"): 1, ("name", "skipped"): 2}
    assert shown["trials"] == outcomes
    assert shown["slot_seconds"] == {("name", "H200"): 4.0}
    assert shown["slot_seconds_saved"] == {("name",): 2.0}, "an interrupted trial saves nothing"
    assert shown["trials_waiting"] == {("name",): 0}
    assert shown["trials_running"] == {("name",): 0}
