"""Audits: how many are drawn, and which."""

import pytest

from orchestrator.search.best.audit import MIN_AUDITS, Auditor, ExpectedTrial
from orchestrator.search.model.measurements import measurement_of
from orchestrator.units import GIB
from tests.benchmarks.grids import make_record, make_spec

EXPECTED = ExpectedTrial(
    rule="cannot_gain", memory_bytes=3 * GIB, most_bytes=4 * GIB, samples_per_second=8.0
)


def audited(fraction: float, *, searched_seconds: float, seed: int = 0, long: int = 1) -> list[int]:
    """Draw until no more is wanted. A trial of the candidates 0 to 99 takes a second, of an even
    one ``long`` times as long."""
    auditor = Auditor(100, fraction, seed)
    auditor.spend(0, searched_seconds)
    seconds = {index: 1.0 if index % 2 else float(long) for index in range(100)}
    drawn = []
    while (index := auditor.draw(seconds)) is not None:
        auditor.expected[index] = EXPECTED
        auditor.spend(index, seconds.pop(index))
        drawn.append(index)
    return drawn


def test_auditor_draws_its_fraction_of_the_pruned():
    drawn = audited(0.1, searched_seconds=1e6)
    assert len(drawn) == 10
    assert len(set(drawn)) == 10


def test_auditor_with_fraction_zero_draws_nothing():
    assert audited(0.0, searched_seconds=1e6) == []


def test_auditor_stops_at_its_share_of_the_time():
    # Five of the 50 seconds then: exactly its share.
    assert len(audited(0.1, searched_seconds=46.0)) == 5


def test_auditor_draws_a_few_whatever_they_cost():
    assert len(audited(0.1, searched_seconds=0.0)) == MIN_AUDITS


def test_auditor_draws_long_trials_less_often():
    draws: list[int] = []
    for seed in range(50):
        draws += audited(0.1, searched_seconds=1e6, seed=seed, long=4)
    long_ones = sum(index % 2 == 0 for index in draws)
    assert 0.1 * len(draws) < long_ones < 0.3 * len(draws)


def test_audit_compares_what_was_expected_with_what_was_measured():
    auditor = Auditor(3, 1.0, 0)
    auditor.expected = {0: EXPECTED, 1: EXPECTED, 2: EXPECTED}
    record = make_record(make_spec({"micro_batch": 1}), 2 * GIB, 10.0)
    auditor.add_result(0, "measured", measurement_of([record]), contradicts=True)
    auditor.add_result(1, "failed", None, contradicts=False)
    assert [auditor.is_awaited(index) for index in range(4)] == [False, False, True, False]
    measured, unmeasured = auditor.audits.values()
    assert (measured.memory_error, measured.speed_error) == pytest.approx((0.5, -0.2))
    assert (unmeasured.memory_error, unmeasured.speed_error) == (None, None)
    assert auditor.summary(0.02) == {
        "audited": 2,
        "contradicted": 1,
        "tolerance": 0.02,
        "memory_error": {"median": pytest.approx(0.5), "largest": pytest.approx(0.5)},
        "speed_error": {"median": pytest.approx(0.2), "largest": pytest.approx(0.2)},
    }
