"""Memory predicted beside a sweep: a mapping that fills; a worker that fails leaves it empty."""

import math
import os
import threading
import time
from collections.abc import Sequence
from importlib.metadata import version
from unittest.mock import Mock

import numpy as np
import pytest

from jobs.spec import TrialSpec
from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.prediction import Figure, Prediction
from orchestrator.prediction.time.operations import StepWork, Work
from orchestrator.running import background_prediction
from orchestrator.running.background_prediction import BackgroundPredictor
from tests.conftest import build_tiny_spec
from tests.support.records import make_record

FAILING_BATCH = 99
UNKNOWN_BATCH = 1


def predict_a_byte_per_sample(trials: Sequence[TrialSpec], gpu: Gpu) -> list[Prediction]:
    """Runs in a worker."""
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "", "the GPU is the trials'"
    return [_prediction(trial, gpu) for trial in trials]


def _prediction(trial: TrialSpec, gpu: Gpu) -> Prediction:
    size = trial.micro_batch
    if size == FAILING_BATCH:
        raise ValueError("fp12")
    if size == UNKNOWN_BATCH:
        return Prediction(
            trial_id=trial.trial_id, choices=trial.choices, unknown=f"one sample on {gpu.name}"
        )
    device = Figure(bytes=size, low=size, high=size)
    kernels = Work(by_kind={"copies": np.array([[0, 3.35e9, 1000, 0, 0, 0, 0]])})
    step = StepWork(eager=kernels, compiled=kernels, samples=size, tokens=0)
    return Prediction(trial_id=trial.trial_id, choices=trial.choices, device=device, step=step)


def trials_of(*sizes: int, precision: str = "bf16") -> list[TrialSpec]:
    return [make_record(micro_batch=size, precision=precision).spec for size in sizes]


def test_background_predictions_fill_the_mapping(caplog):
    trials = trials_of(UNKNOWN_BATCH, 2, 3)
    untraced = build_tiny_spec({"compile": "inductor_regional"})
    failing = trials_of(FAILING_BATCH, precision="fp32")
    with BackgroundPredictor(predict_a_byte_per_sample, gives_times=True) as predictor:
        nothing = predictor.of(lambda: failing, "")
        predicted = predictor.of(lambda: [untraced, *trials], "NVIDIA H200")
        seconds = predictor.seconds_on("NVIDIA H200")
        predictor.started(trials[0])
        while not (predicted and len(caplog.messages) > 1):
            time.sleep(0.01)
    assert predicted == {trial.trial_id: float(trial.micro_batch) for trial in trials[1:]}
    assert nothing == predictor.seconds_on("") == {}
    assert seconds.keys() == predicted.keys()
    assert all(0.1 < own < 10 for own in seconds.values())
    reasons = {own.split(": ")[1] for own in caplog.messages}
    assert reasons == {"fp12", "one sample on h200"}


def test_nothing_is_chosen_or_predicted_before_the_first_trial():
    chosen: list[str] = []

    def choose() -> list[TrialSpec]:
        chosen.append("once")
        return []

    with BackgroundPredictor(predict_a_byte_per_sample) as predictor:
        predictor.of(choose, "NVIDIA H200")
        assert chosen == []
        for trial in trials_of(2, 3):
            predictor.started(trial)
    assert chosen == ["once"]


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_first_record_waits_for_forecasts_as_long_as_its_trial_took(seconds):
    trials = trials_of(2, 3)
    first, second = make_record(slot_seconds=seconds), make_record(slot_seconds=60.0)
    with BackgroundPredictor(predict_a_byte_per_sample, gives_times=True) as predictor:
        may_choose = threading.Event()
        predicted = predictor.of(lambda: (may_choose.wait() and trials) or [], "NVIDIA H200")
        predictor.begin_early()
        assert predictor.completed(first, waits=False) is None
        if seconds:
            may_choose.set()
        assert predictor.completed(first, waits=True) is first
        assert bool(predicted) == bool(seconds)
        may_choose.set()
        assert predictor.completed(second, waits=False) is second


def test_trials_with_another_transformers_are_named_once(caplog):
    installed = version("transformers")
    with BackgroundPredictor(predict_a_byte_per_sample) as predictor:
        predictor.ended(make_record(environment={"transformers": "4.0"}), measured=False)
        assert not caplog.messages
        for _ in range(2):
            predictor.ended(make_record(environment={"transformers": "4.0"}), measured=True)
    [message] = caplog.messages
    assert f"transformers {installed}, and trials run with 4.0" in message
    caplog.clear()
    with BackgroundPredictor(predict_a_byte_per_sample) as predictor:
        predictor.ended(make_record(environment={"transformers": installed}), measured=True)
    assert not caplog.messages


@pytest.mark.parametrize(("number", "may_start"), [(1, True), (2, True), (2, False)])
def test_map_across_cores_keeps_the_order(monkeypatch, number, may_start):
    monkeypatch.setattr(background_prediction, "cores", lambda: number)
    if not may_start:
        monkeypatch.setattr(background_prediction, "workers", Mock(side_effect=OSError))
    with background_prediction.across_cores() as across:
        assert list(across(math.sqrt, [own * own for own in range(7)])) == [*range(7)]
        assert next(iter(across(math.sqrt, [4, 9]))) == 2


def test_map_across_cores_raises_what_a_process_raises(monkeypatch):
    monkeypatch.setattr(background_prediction, "cores", lambda: 2)
    with background_prediction.across_cores() as across, pytest.raises(ValueError, match="domain"):
        list(across(math.sqrt, [1, -1]))
