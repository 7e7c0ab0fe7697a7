"""Candidates for an effective batch."""

from dataclasses import replace

import pytest

from jobs.flags import Flag, FlagKind
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.recommendation.offers import candidates, key_of
from tests.support.configurations import make_configuration
from tests.support.recorded_runs import recorded

KNOWN = {"parameters_trainable": 10, "parameter_dtypes": "float32"}
TECHNIQUES = "2026-11-21-all_techniques-2xh200"


def make(
    micro_batch: int, accumulation: int, memory: int = 1000, speed: float = 50.0, **row: object
) -> Configuration:
    return make_configuration(
        memory, speed, micro_batch=micro_batch, accumulation=accumulation, **row
    )


def wrong(configuration: Configuration, kind: FlagKind) -> Configuration:
    return replace(configuration, flags=(Flag(kind, 4.0),))


def test_candidates_infer_more_accumulation_and_add_the_gradients():
    (candidate,) = candidates([make(4, 1, **KNOWN)], 16)
    assert (candidate.is_inferred, candidate.accumulation) == (True, 4)
    assert (candidate.extra_bytes, candidate.memory_bytes) == (40, 1040)
    assert candidate.effective_batch == 16


@pytest.mark.parametrize(
    ("dtypes", "columns", "bytes_each"),
    [("bfloat16", {}, 2), ("bfloat16, float32", {}, 4), ("bfloat16", {"zero_stage": 2}, 4)],
)
def test_candidates_count_gradients_in_the_widest_type(dtypes, columns, bytes_each):
    known = {"parameters_trainable": 10, "parameter_dtypes": dtypes, **columns}
    (candidate,) = candidates([make(4, 1, **known)], 8)
    assert candidate.extra_bytes == 10 * bytes_each


def test_candidates_infer_from_the_most_accumulated_measurement():
    (candidate,) = candidates([make(4, 1, **KNOWN), make(4, 2, 1030, **KNOWN)], 16)
    assert candidate.measured.accumulation == 2
    assert candidate.memory_bytes == 1030  # its gradients were kept already


def test_candidates_never_infer_what_cannot_be_promised():
    assert not candidates([make(4, 8, **KNOWN)], 16)  # less accumulation would be slower
    assert not candidates([make(3, 1, **KNOWN)], 16)  # does not divide
    assert not candidates([make(4, 1)], 16)  # size of the gradients unknown


def test_candidates_prefer_a_measurement_at_the_batch():
    (candidate,) = candidates([make(4, 1, **KNOWN), make(4, 4, 1035, **KNOWN)], 16)
    assert not candidate.is_inferred


def test_candidates_beside_a_row_whose_loss_has_a_wrong_scale_are_bounds_and_say_so():
    single = make(4, 1, **KNOWN)
    scaled = wrong(make(4, 4, 1100, 60.0, **KNOWN), FlagKind.LOSS_TIMES_ACCUMULATION)
    for batch in (16, 32):
        candidate = candidates([single, scaled], batch)[-1]
        assert (candidate.is_inferred, candidate.measured) == (True, single)
        assert candidate.suspicion == Flag(FlagKind.ACCUMULATION_SUSPECT, 4.0)


def test_candidates_are_not_inferred_beyond_an_accumulation_that_fails():
    rows = [make(4, 1, **KNOWN), wrong(make(4, 4, **KNOWN), FlagKind.LOSS_MISMATCH)]
    assert [own.accumulation for own in candidates(rows, 8)] == [2]
    assert not candidates(rows, 32)


def test_inferred_bounds_hold_where_the_accumulation_was_measured_too():
    configurations = recorded(TECHNIQUES).configurations
    (own,) = [each for each in configurations if (each.micro_batch, each.accumulation) == (16, 4)]
    bounds = candidates([each for each in configurations if each.accumulation == 1], 64)
    (bound,) = [each for each in bounds if key_of(each.measured) == key_of(own)]
    assert bound.configuration.samples_per_second <= own.samples_per_second
    assert own.memory_bytes <= bound.memory_bytes <= 1.01 * own.memory_bytes
