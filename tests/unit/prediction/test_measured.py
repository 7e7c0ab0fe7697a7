"""Forecasts of techniques beside the peaks of trials on an H200."""

import csv
import importlib.util
import itertools

import pytest

from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.unsupported import triton_libraries
from tests.support.commands import ROOT

FOLDER = ROOT / "tests/data/traced_h200"
LINES = (FOLDER / "peaks.csv").read_text().splitlines()[1:]
PEAKS = {
    name: {row["trial_id"]: row for row in rows}
    for name, rows in itertools.groupby(csv.DictReader(LINES), lambda row: row["configuration"])
}


@pytest.mark.parametrize("name", PEAKS)
def test_peaks_are_what_an_h200_measured(name):
    measured = PEAKS[name]
    trials = plan(load_config(FOLDER / f"{name}.yaml"), has_gpu=True).trials
    specs = [own for own in trials if own.trial_id in measured]
    assert len(specs) == len(measured)
    if not all(map(importlib.util.find_spec, itertools.chain(*map(triton_libraries, specs)))):
        pytest.skip("a library that is traced is not installed")
    for spec, own in zip(specs, predict(specs, load_gpu("h200")), strict=True):
        row = measured[spec.trial_id]
        peak, device = int(row["peak_allocated_bytes"]), int(row["device_peak_bytes"])
        assert own.allocated is not None, own.unknown
        assert own.allocated.bytes == pytest.approx(peak, rel=0.004)
        assert own.device.bytes == pytest.approx(device, rel=0.02)
        assert own.device.low <= device <= own.device.most
