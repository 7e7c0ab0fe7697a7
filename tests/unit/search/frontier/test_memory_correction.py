"""Predicted memory corrected by measured: what it says about the rest, and how sure it is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.search.frontier.memory_correction import MemoryCorrection
from orchestrator.search.model.candidates import candidates_of
from tests.benchmarks.grids import make_spec

SIZES = (1, 2, 4, 8, 16, 32)
CANDIDATES = candidates_of(
    make_spec({"micro_batch": size, "precision": precision})
    for precision in ("fp32", "tf32")
    for size in SIZES
)
PREDICTED = np.log([10.0 + candidate.micro_batch for candidate in CANDIDATES])


def corrected(measured: dict[int, float]) -> MemoryCorrection:
    """With some candidates measured: number -> bytes."""
    correction = MemoryCorrection(CANDIDATES)
    for index, memory_bytes in measured.items():
        correction.observe(index, memory_bytes)
    return correction


def test_correction_carries_over_to_an_equal_prediction() -> None:
    posterior = corrected({3: 18.4}).posterior(PREDICTED)
    equal, next_larger = len(SIZES) + 3, len(SIZES) + 4
    assert math.exp(posterior.mean[equal]) == pytest.approx(18.4, rel=1e-3)
    assert 2 * posterior.deviation[equal] < posterior.deviation[next_larger]


def test_correction_removes_an_error_of_all_predictions() -> None:
    measured = {index: 1.1 * math.exp(PREDICTED[index]) for index in (0, 2, 4)}
    posterior = corrected(measured).posterior(PREDICTED)
    assert np.exp(posterior.mean - PREDICTED) == pytest.approx(1.1, rel=0.005)


def test_correction_is_less_sure_where_predictions_fail() -> None:
    errors = dict(enumerate((0.9, 1.15, 0.95, 1.1)))
    good = corrected({index: math.exp(PREDICTED[index]) for index in errors})
    bad = corrected({index: own * math.exp(PREDICTED[index]) for index, own in errors.items()})
    unmeasured = 5
    sure = good.posterior(PREDICTED).deviation[unmeasured]
    assert bad.posterior(PREDICTED).deviation[unmeasured] > 5 * sure


def test_correction_says_nothing_without_a_prediction() -> None:
    is_unknown = np.arange(len(CANDIDATES)) % 3 == 0
    unknown = np.where(is_unknown, math.nan, PREDICTED)
    posterior = corrected({1: 12.0}).posterior(unknown)
    assert np.isnan(posterior.mean).tolist() == is_unknown.tolist()
