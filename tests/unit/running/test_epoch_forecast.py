"""The memory of a whole epoch is added to a trial of a few steps on rows of unequal length."""

import time
from dataclasses import replace

import pytest

from jobs.spec import DataSpec, RowLengthDistribution, SyntheticData
from orchestrator.analysis.configuration import gpu_memory
from orchestrator.prediction.prediction import Prediction, figure
from orchestrator.running import background_prediction
from orchestrator.running.background_prediction import EpochForecasts
from tests.support.records import make_record

UNEQUAL = SyntheticData(lengths=RowLengthDistribution(distribution="uniform", mean=20))


def predicted(specs, gpu):
    """A forecast of another process; the workers import it by name."""
    return forecast_of(70_000, 58_000)


def smaller(specs, gpu):
    return forecast_of(51_000, 58_000)


def forecast_of(epoch, trial):
    device, trial_device = (figure(size, below=0, above=0) for size in (epoch, trial))
    return [Prediction(trial_id="", choices={}, device=device, trial_device=trial_device)]


def broken(specs, gpu):
    raise NotImplementedError


def late(specs, gpu):
    time.sleep(600)


def record_on(data, steps):
    record = make_record(measurements={"device_peak_bytes": 60_000})
    spec = replace(record.spec, data=DataSpec(synthetic=data))
    return replace(record, spec=replace(spec, measure=replace(spec.measure, steps=steps)))


@pytest.mark.parametrize(
    ("data", "steps", "gpu", "forecast", "growth"),
    [
        (UNEQUAL, 5, "NVIDIA H100 80GB HBM3", predicted, 12_000),
        (UNEQUAL, 5, "NVIDIA H100 80GB HBM3", smaller, -7_000),
        (UNEQUAL, 5, "NVIDIA H100 80GB HBM3", broken, None),
        (SyntheticData(), 5, "NVIDIA H100 80GB HBM3", predicted, None),
        (UNEQUAL, None, "NVIDIA H100 80GB HBM3", predicted, None),
        (UNEQUAL, 5, "", predicted, None),
    ],
    ids=["grows", "shrinks", "no forecast", "equal rows", "a whole epoch", "no GPU"],
)
def test_growth_of_an_epoch(monkeypatch, data, steps, gpu, forecast, growth):
    monkeypatch.setattr(background_prediction, "likely_memory", forecast)
    record = record_on(data, steps)
    with EpochForecasts(gpu) as forecasts:
        forecasts.started(record.spec)
        completed = forecasts.completed(record)
    assert completed.measurements.get("epoch_growth_bytes") == growth
    assert gpu_memory(completed.measurements) == 60_000 + (growth or 0)


@pytest.mark.parametrize("is_patient", [True, False])
def test_a_forecast_that_is_not_ready_is_not_waited_for_and_given_up_in_time(
    monkeypatch, is_patient
):
    monkeypatch.setattr(background_prediction, "likely_memory", late)
    if not is_patient:
        monkeypatch.setattr(background_prediction, "_PATIENCE_SECONDS", 0.0)
    record = record_on(UNEQUAL, 5)
    with EpochForecasts("NVIDIA H100 80GB HBM3") as forecasts:
        forecasts.started(record.spec)
        assert forecasts.completed(record, waits=False) == (None if is_patient else record)
