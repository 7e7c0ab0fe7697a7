"""The gain that unmeasured candidates could bring while nothing measured fits a budget."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.search.best.gain import Posterior, expected_gains, remaining_gain
from orchestrator.search.best.state import SearchState
from orchestrator.search.model.candidates import candidates_of
from orchestrator.search.model.effects.technique_priors import Effect, TechniquePriors
from orchestrator.units import GIB
from tests.benchmarks.grids import make_record, make_spec

SLOW = Effect(log_time=3.0, deviation=0.1, log_memory=1.0, memory_deviation=0.1, models=3)
PRIORS = TechniquePriors(effects={"offload": {"zero2_cpu_optimizer": SLOW}})
SIZES = (2, 4, 8)
BUDGET = 10 * GIB


def posterior() -> Posterior:
    """Three sizes of fast trials, the largest measured, and three of a technique that is slow."""
    listed = []
    for offload in ("none", "zero2_cpu_optimizer"):
        for size in SIZES:
            listed.append(make_spec({"offload": offload, "micro_batch": size, "accumulation": 1}))
    predicted = {spec.trial_id: (4.0 + 2 * spec.micro_batch) * GIB for spec in listed[:3]}
    state = SearchState(candidates_of(listed), predicted, PRIORS)
    state.note(2, make_record(listed[2], 20 * GIB, 100.0, device_bytes=80 * GIB))
    found = state.posterior()
    assert found is not None
    return found


def test_gains_without_an_incumbent_do_not_depend_on_slow_candidates_that_do_not_fit() -> None:
    is_open = np.array([True, True, False, True, True, True])
    without_slow = np.array([True, True, False, False, False, False])
    known = posterior()
    gains = expected_gains(known, None, BUDGET, is_open)
    assert gains[:2] == pytest.approx(expected_gains(known, None, BUDGET, without_slow)[:2])
    # What surely does not fit gains nothing.
    assert gains[5] == pytest.approx(0.0, abs=1e-3)


def test_values_without_an_incumbent_are_the_expected_gains() -> None:
    is_open = np.array([True, True, False, True, True, True])
    known = posterior()
    gains = expected_gains(known, None, BUDGET, is_open)
    left = remaining_gain(known, None, BUDGET, gains, probability=0.95, seed=0)
    assert left.values.tolist() == gains.tolist()
    assert left.probability_any_fits > 0.9
