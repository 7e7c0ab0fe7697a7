"""Memory predicted beside a sweep: a mapping that fills, and a worker that fails is not missed."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import pytest

from jobs.spec import TrialSpec
from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.prediction import Figure, Prediction
from orchestrator.running.background_prediction import Foretelling
from tests.benchmarks.grids import make_spec


def by_size(trials: Sequence[TrialSpec], gpu: Gpu) -> list[Prediction]:
    """A byte a sample; where there is none, unknown; with a precision nobody knows, not even that."""
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "", "the GPU is the trials'"
    if trials[0].choices.get("precision") == "fp12":
        raise ValueError("fp12")
    sizes = [trial.micro_batch for trial in trials]
    return [
        Prediction(
            trial_id=trial.trial_id,
            choices=trial.choices,
            device=Figure(bytes=size, low=size, high=size) if size > 1 else None,
            unknown="" if size > 1 else f"one sample on {gpu.name}",
        )
        for trial, size in zip(trials, sizes, strict=True)
    ]


def test_what_can_be_predicted_becomes_known(caplog: pytest.LogCaptureFixture) -> None:
    trials = [make_spec({"micro_batch": size}, "") for size in (1, 2, 3)]
    strange = [make_spec({"micro_batch": 2, "precision": "fp12"}, "")]
    give_up = time.monotonic() + 120
    with Foretelling(by_size) as foretelling:
        nothing, found = foretelling.of(strange, ""), foretelling.of(trials, "NVIDIA H200")
        while not (found and caplog.messages) and time.monotonic() < give_up:
            time.sleep(0.01)
    assert found == {trial.trial_id: float(trial.micro_batch) for trial in trials[1:]}
    assert nothing == {}
    assert caplog.messages == ["some trials' memory is not predicted: fp12"]
