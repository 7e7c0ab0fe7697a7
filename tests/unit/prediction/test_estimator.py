"""Predicting shows how far it is, because a trace takes seconds."""

from types import SimpleNamespace
from typing import Any

from orchestrator.prediction import estimator
from tests.benchmarks.grids import make_spec


def test_predictions_are_counted_as_they_come(monkeypatch):
    def traced(group: list[Any], gpus: list[Any]) -> list[list[Any]]:
        return [[SimpleNamespace(trial_id=spec.trial_id)] for spec in group]

    monkeypatch.setattr(estimator, "predictions", traced)
    trials = [make_spec({"micro_batch": size, "accumulation": 1}) for size in (1, 2, 4)]
    seen: list[tuple[int, int]] = []
    gpu: Any = None
    found = estimator.predict(trials, gpu, lambda *counts: seen.append(counts))
    assert [own.trial_id for own in found] == [spec.trial_id for spec in trials]
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]
