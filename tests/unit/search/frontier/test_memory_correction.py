"""Predicted memory corrected by measured: what it then says of what was not measured, and how sure it is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.search.frontier.configurations import configurations
from orchestrator.search.frontier.memory_correction import Correction
from tests.benchmarks.grids import make_spec

SIZES = (1, 2, 4, 8, 16, 32)
PLANNED = configurations(
    make_spec({"micro_batch": size, "precision": precision}, "")
    for precision in ("fp32", "tf32")
    for size in SIZES
)
PREDICTED = np.log([10.0 + one.micro_batch for one in PLANNED])


def test_what_was_measured_is_also_known_of_what_was_predicted_to_be_the_same() -> None:
    correction = Correction(PLANNED)
    correction.put(3, 18.4)
    estimate = correction.estimate(PREDICTED)
    assert math.exp(estimate.mean[len(SIZES) + 3]) == pytest.approx(18.4, rel=1e-3)
    assert 2 * estimate.deviation[len(SIZES) + 3] < estimate.deviation[len(SIZES) + 4]


def test_an_error_of_all_predictions_is_taken_off() -> None:
    correction = Correction(PLANNED)
    for place in (0, 2, 4):
        correction.put(place, 1.1 * math.exp(PREDICTED[place]))
    estimate = correction.estimate(PREDICTED)
    assert np.exp(estimate.mean - PREDICTED) == pytest.approx(1.1, rel=0.005)


def test_bounds_widen_where_predictions_are_seen_to_fail() -> None:
    good, bad = Correction(PLANNED), Correction(PLANNED)
    for place, off in enumerate((0.9, 1.15, 0.95, 1.1)):
        good.put(place, math.exp(PREDICTED[place]))
        bad.put(place, off * math.exp(PREDICTED[place]))
    assert bad.estimate(PREDICTED).deviation[5] > 5 * good.estimate(PREDICTED).deviation[5]


def test_of_what_was_not_predicted_it_says_nothing() -> None:
    correction = Correction(PLANNED)
    correction.put(1, 12.0)
    unknown = np.where(np.arange(len(PLANNED)) % 3 == 0, math.nan, PREDICTED)
    estimate = correction.estimate(unknown)
    assert np.isnan(estimate.mean).tolist() == np.isnan(unknown).tolist()
