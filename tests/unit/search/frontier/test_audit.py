"""Audits: how many are drawn, and which."""

from __future__ import annotations

from orchestrator.search.frontier.audit import MIN_AUDITS, Auditor
from orchestrator.search.frontier.pruning import PruningDecision

from orchestrator.search.model.candidates import Candidate, candidates_of
from tests.benchmarks.grids import make_spec

CANDIDATES = candidates_of(make_spec({"micro_batch": size}) for size in range(1, 101))
DECISION = PruningDecision("dominated", "it is slower", 0.02)


def audited(
    fraction: float, *, searched_seconds: float, seed: int = 0, long: int = 1
) -> list[Candidate]:
    """Draw until no more is wanted. A trial takes a second, of an even micro-batch ``long`` times
    as long."""
    auditor = Auditor(CANDIDATES, fraction, seed)
    auditor.spend(CANDIDATES[0], searched_seconds)
    seconds = {own: 1.0 if own.micro_batch % 2 else float(long) for own in CANDIDATES}
    drawn = []
    while (candidate := auditor.draw(seconds)) is not None:
        auditor.begin(candidate, DECISION, None)
        auditor.spend(candidate, seconds.pop(candidate))
        drawn.append(candidate)
    return drawn


def test_auditor_draws_its_fraction_of_the_pruned() -> None:
    drawn = audited(0.1, searched_seconds=1e6)
    assert len(drawn) == 10
    assert len(set(drawn)) == 10


def test_auditor_with_fraction_zero_draws_nothing() -> None:
    assert audited(0.0, searched_seconds=1e6) == []


def test_auditor_stops_at_its_share_of_the_time() -> None:
    assert len(audited(0.1, searched_seconds=50.0)) == 5


def test_auditor_draws_a_few_whatever_they_cost() -> None:
    assert len(audited(0.1, searched_seconds=0.0)) == MIN_AUDITS


def test_auditor_draws_long_trials_less_often() -> None:
    draws: list[Candidate] = []
    for seed in range(50):
        draws += audited(0.1, searched_seconds=1e6, seed=seed, long=4)
    long_ones = sum(own.micro_batch % 2 == 0 for own in draws)
    assert 0.1 * len(draws) < long_ones < 0.3 * len(draws)
