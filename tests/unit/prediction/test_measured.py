"""Forecasts of techniques beside the peaks of trials on an H200."""

import importlib.util

import pytest

from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.unsupported import triton_libraries
from orchestrator.storage.tables.table_reader import read_trials_file
from tests.support.commands import ROOT

FOLDER = ROOT / "tests/data/predictions/sixth"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["decoder", "neftune", "smoothing"])
def test_peaks_are_what_an_h200_measured(name):
    trials = plan(load_config(FOLDER / f"{name}.yaml"), has_gpu=True).trials
    rows = read_trials_file(FOLDER / name / "trials.parquet").rows
    pairs = [
        (spec, row)
        for spec, row in zip(trials, rows, strict=True)
        if row["outcome"] == "ok" and all(map(importlib.util.find_spec, triton_libraries(spec)))
    ]
    predictions = predict([spec for spec, _ in pairs], load_gpu("h200"))
    for (_, row), own in zip(pairs, predictions, strict=True):
        assert own.allocated is not None, own.unknown
        assert own.allocated.bytes == pytest.approx(row["peak_allocated_bytes"], rel=0.006)
        assert own.device.bytes == pytest.approx(row["device_peak_bytes"], rel=0.02)
        assert own.device.low <= row["device_peak_bytes"] <= own.device.most
