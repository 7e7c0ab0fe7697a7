"""Memory and speed of every candidate: bounds, and comparisons of two candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.search.frontier.surrogate import Surrogate
from orchestrator.search.model.candidates import Candidate, candidates_of
from orchestrator.search.model.measurements import Measurement, measurement_of
from orchestrator.search.model.performance_model import Branch
from tests.benchmarks.grids import with_noise
from tests.benchmarks.simulated_grids import simulated

Z_SCORE = 2.5
TABLE = with_noise(simulated(), 0.05, seed=0)
CANDIDATES = candidates_of(record.spec for record in TABLE.values())


def measured() -> dict[Candidate, Measurement]:
    """Every fifth configuration of a noisy grid."""
    found = {}
    for candidate in CANDIDATES[::5]:
        measurement = measurement_of(TABLE[trial_id] for trial_id in candidate.trial_ids)
        if measurement is not None:
            found[candidate] = measurement
    return found


def learned(
    measurements: Mapping[Candidate, Measurement], predicted: Mapping[str, float] | None = None
) -> Surrogate:
    """From these measurements."""
    surrogate = Surrogate(CANDIDATES, predicted or {})
    for candidate, measurement in measurements.items():
        surrogate.observe(candidate, measurement)
    return surrogate


def test_speed_ratios_cancel_doubt_that_both_share() -> None:
    surrogate = learned(measured())
    predictions = surrogate.predictions(Z_SCORE)
    ratios = surrogate.highest_speed_ratios(CANDIDATES, CANDIDATES, Z_SCORE)
    assert np.allclose(np.diag(ratios), 1.0)
    # Each is the best case of one against the other.
    assert (ratios * ratios.T >= 1.0 - 1e-9).all()
    speed = np.array([own.speed for own in predictions.values()])
    highest = np.array([own.highest_speed for own in predictions.values()])
    independent = np.outer(highest / speed, highest / speed)
    assert (ratios <= independent * speed[:, None] / speed + 1e-9).all()


def test_launch_bound_speed_binds_its_neighbors_less() -> None:
    def doubt(launch_bound_share: float) -> float:
        measurements = measured()
        for candidate, measurement in measurements.items():
            if candidate.micro_batch == 16:
                waiting = replace(measurement, launch_bound_share=launch_bound_share)
                measurements[candidate] = waiting
        predictions = learned(measurements).predictions(Z_SCORE)
        ratios = [
            own.highest_speed / own.speed
            for candidate, own in predictions.items()
            if candidate.micro_batch == 32
        ]
        return float(np.median(ratios))

    assert doubt(0.4) > 1.05 * doubt(0.0)


def test_predicted_memory_is_corrected_and_missing_ones_are_modeled() -> None:
    true_bytes = {own: record.measurements["device_peak_bytes"] for own, record in TABLE.items()}
    half = {own: 1.05 * size for own, size in list(true_bytes.items())[::2]}
    predictions = learned(measured(), half).predictions(Z_SCORE)
    assert len(predictions) == len(CANDIDATES)
    for candidate, prediction in predictions.items():
        trial_id = candidate.trial_ids[0]
        if trial_id in half and TABLE[trial_id].measurements.get("samples_per_second"):
            assert prediction.memory == pytest.approx(true_bytes[trial_id], rel=0.05)
        assert prediction.least_memory <= prediction.memory


def test_predictions_before_any_measurement_are_empty() -> None:
    assert Surrogate(CANDIDATES, {}).predictions(Z_SCORE) == {}


@pytest.mark.parametrize(
    ("host_bound_share", "launch_bound_share", "branch"),
    [
        (None, 0.0, Branch.UNKNOWN),
        (0.0, 0.0, Branch.GPU_BOUND),
        (0.0, 0.3, Branch.UNKNOWN),
        (0.5, 0.0, Branch.HOST_BOUND),
        (1.0, 0.3, Branch.HOST_BOUND),
    ],
)
def test_branch_of_a_time_follows_from_who_waited(
    host_bound_share: float | None, launch_bound_share: float, branch: Branch
) -> None:
    measurement = Measurement(
        memory_bytes=1.0,
        samples_per_second=1.0,
        trial_id="",
        host_bound_share=host_bound_share,
        launch_bound_share=launch_bound_share,
    )
    assert measurement.branch is branch
