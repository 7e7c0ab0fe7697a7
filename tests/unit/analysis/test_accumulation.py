"""Candidates for an effective batch."""

from __future__ import annotations

from jobs.flags import FlagKind
from orchestrator.analysis.accumulation import Candidate, candidates
from orchestrator.analysis.dataset import load_dataset
from tests.support.configurations import make_configuration
from tests.support.recorded_runs import RECORDED

KNOWN = {"parameters_trainable": 10, "parameter_dtypes": "float32"}


def make(micro_batch: int, accumulation: int, memory: int = 1000, **row: object):
    return make_configuration(
        memory, 50.0, micro_batch=micro_batch, accumulation=accumulation, **row
    )


def test_candidates_infer_more_accumulation_and_add_the_gradients() -> None:
    (candidate,) = candidates([make(4, 1, **KNOWN)], 16)
    assert candidate.is_inferred
    assert candidate.accumulation == 4
    assert candidate.extra_bytes == 40
    assert candidate.configuration.memory_bytes == 1040


def test_candidates_infer_from_the_most_accumulated_measurement() -> None:
    (candidate,) = candidates([make(4, 1, **KNOWN), make(4, 2, 1030, **KNOWN)], 16)
    assert candidate.measured.row["accumulation"] == 2
    assert candidate.configuration.memory_bytes == 1030  # its gradients were kept already


def test_candidates_never_infer_what_cannot_be_promised() -> None:
    assert not candidates([make(4, 8, **KNOWN)], 16)  # less accumulation would be slower
    assert not candidates([make(3, 1, **KNOWN)], 16)  # does not divide
    assert not candidates([make(4, 1)], 16)  # size of the gradients unknown


def test_candidates_prefer_a_measurement_at_the_batch() -> None:
    (candidate,) = candidates([make(4, 1, **KNOWN), make(4, 4, 1035, **KNOWN)], 16)
    assert not candidate.is_inferred


def without_accumulation(candidate: Candidate) -> dict[str, object]:
    choices = candidate.configuration.choices
    return {axis: value for axis, value in choices.items() if axis != "accumulation"}


def test_inferred_bounds_hold_where_the_accumulation_was_measured_too() -> None:
    results = load_dataset(RECORDED / "2026-11-21-all_techniques-2xh200").main
    assert results is not None
    (accumulated,) = [
        own
        for own in results.configurations
        if (own.row["micro_batch"], own.row["accumulation"]) == (16, 4)
    ]
    (measured,) = candidates([accumulated])
    others = [own for own in results.configurations if own.row["accumulation"] == 1]
    (bound,) = [
        candidate
        for candidate in candidates(others, 64)
        if without_accumulation(candidate) == without_accumulation(measured)
    ]
    inferred = bound.configuration
    assert inferred.samples_per_second <= accumulated.samples_per_second
    assert accumulated.memory_bytes <= inferred.memory_bytes <= 1.01 * accumulated.memory_bytes


def test_candidates_inherit_suspicion_of_their_loops_accumulation() -> None:
    results = load_dataset(RECORDED / "2026-11-21-all_techniques-2xh200").main
    assert results is not None
    for candidate in candidates(results.configurations, 128):
        if candidate.is_inferred and candidate.configuration.choices["loop"] == "trainer":
            assert candidate.suspicion is not None
            assert candidate.suspicion.kind is FlagKind.ACCUMULATION_SUSPECT
