"""A sweep's metrics for Prometheus, on counters and gauges that remember."""

import functools
from collections.abc import Mapping
from types import SimpleNamespace

from jobs.record import Outcome, skipped
from orchestrator.running.observers.prometheus import Metrics
from tests.conftest import build_tiny_spec
from tests.support.records import ended

TRIALS = [build_tiny_spec(repeat=number) for number in range(5)]


class Exporter(dict[str, dict[tuple[str, ...], float]]):
    """Makes counters and gauges as Ray does, and holds their values: name -> tags -> value."""

    def __call__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> SimpleNamespace:
        values = self[name.removeprefix("orchestrator_")] = {}

        def set_value(value: float, tags: Mapping[str, str]) -> None:
            values[tuple(tags[key] for key in tag_keys)] = value

        def inc(value: float, tags: Mapping[str, str]) -> None:
            set_value(values.get(tuple(tags[key] for key in tag_keys), 0.0) + value, tags)

        return SimpleNamespace(inc=inc, set=set_value)


of_h200 = functools.partial(ended, environment={"gpu_model": "H200"}, seconds=2.0)


def test_metrics_count_trials_and_slot_seconds():
    shown = Exporter()
    metrics = Metrics("name", len(TRIALS), counter=shown, gauge=shown)
    metrics.ended(of_h200(TRIALS[0], Outcome.OK), measured=False)
    metrics.started(TRIALS[1])
    metrics.started(TRIALS[2])
    assert shown["trials_waiting"] == {("name",): 2}
    assert shown["trials_running"] == {("name",): 2}
    metrics.ended(of_h200(TRIALS[1], Outcome.OK), measured=True)
    metrics.ended(of_h200(TRIALS[2], Outcome.FAILED), measured=True)
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
