"""One decision everywhere, and never a training that is known to be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.flags import LOSS, Flag, FlagKind, has_any
from jobs.record import Outcome
from orchestrator.analysis.accumulation import Basis, Candidate
from orchestrator.analysis.budgets import best_in_budgets
from orchestrator.analysis.cap_checks import CapCheck
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.recommendation import (
    Constraints,
    Ranking,
    Recommendation,
    decision_steps,
    recommend,
)
from orchestrator.analysis.tie_breaks import PairedComparison
from orchestrator.units import GIB
from tests.support.configurations import make_configuration
from tests.support.recorded_runs import RECORDED, recorded

RUNS = sorted(path.parent.name for path in RECORDED.glob("*/trials.parquet"))
TECHNIQUES, BERT = "2026-11-21-all_techniques-2xh200", "2026-11-21-bert_large-h200"
GUIDE = "2026-11-21-docs_table-h200"
KNOWN = {"parameters_trainable": 10, "parameter_dtypes": "float32"}


def named(answer: Recommendation) -> Iterator[Candidate]:
    """Everything that an answer offers to train with."""
    if answer.best is not None:
        yield answer.best
    yield from answer.runners_up
    yield from (cost.candidate for cost in answer.costs)
    yield from (nearby.candidate for nearby in answer.nearby)


def wrong(configuration: Configuration, kind: FlagKind, ratio: float) -> Configuration:
    return replace(configuration, flags=(Flag(kind, ratio),))


@pytest.mark.parametrize("run", [TECHNIQUES, GUIDE, BERT])
@pytest.mark.parametrize("effective_batch", [None, 4, 64, 100, 256])
@pytest.mark.parametrize("all_recipes", [False, True])
def test_recommend_offers_nothing_that_trains_wrongly(
    run: str, effective_batch: int | None, all_recipes: bool
) -> None:
    results = recorded(run)
    for memory_bytes in (None, 8 * GIB, 24 * GIB):
        constraints = Constraints(
            memory_bytes=memory_bytes, effective_batch=effective_batch, all_recipes=all_recipes
        )
        for candidate in named(results.recommend(constraints)):
            assert not has_any(candidate.configuration.flags, LOSS)
            assert not candidate.measured.trains_wrongly


def test_recommend_takes_accelerate_over_the_trainers_wrong_accumulation() -> None:
    results = recorded(TECHNIQUES)
    answer = results.recommend(Constraints(memory_bytes=24 * GIB, effective_batch=64))
    assert answer.best is not None
    assert answer.best.configuration.choices["loop"] == "accelerate"
    # The Trainer's own row is evidence for the figures of a training that is right.
    (trainer,) = [own for own in answer.runners_up if own.basis is Basis.WRONG_LOSS_SCALE]
    assert trainer.evidence is not None
    assert trainer.evidence.trains_wrongly
    assert trainer.measured.row["accumulation"] == 1
    assert not trainer.measured.trains_wrongly
    assert trainer.configuration.samples_per_second == trainer.evidence.samples_per_second


def test_recommend_answers_the_readmes_command() -> None:
    answer = recorded(BERT).recommend(Constraints(memory_bytes=24 * GIB, effective_batch=256))
    assert answer.best is not None
    assert (answer.best.micro_batch, answer.best.accumulation) == (32, 8)
    assert answer.best.configuration.samples_per_second > 250


def test_recommend_counts_and_names_the_faster_ones_it_leaves_out() -> None:
    right = make_configuration(10, 50.0, trial_id="right")
    fast = wrong(
        make_configuration(10, 90.0, micro_batch=8, trial_id="fast"), FlagKind.LOSS_MISMATCH, 4.0
    )
    slow = wrong(
        make_configuration(10, 40.0, micro_batch=2, trial_id="slow"),
        FlagKind.LOSS_NOT_FINITE,
        3.0,
    )
    answer = recommend([slow, right, fast], Constraints())
    assert answer.best is not None
    assert answer.best.configuration is right
    assert (answer.left_out.count, answer.left_out.better) == (2, 1)
    assert answer.left_out.best is not None
    assert answer.left_out.best.configuration is fast


def test_candidates_are_not_inferred_beyond_an_accumulation_that_fails() -> None:
    single = make_configuration(10, 50.0, trial_id="single", **KNOWN)
    broken = wrong(
        make_configuration(20, 60.0, accumulation=4, trial_id="broken", **KNOWN),
        FlagKind.LOSS_MISMATCH,
        1.7,
    )
    answer = recommend([single, broken], Constraints(effective_batch=32))
    assert answer.best is None
    below = recommend([single, broken], Constraints(effective_batch=8))
    assert below.best is not None


def test_budget_picks_leave_out_what_trains_wrongly() -> None:
    right = make_configuration(GIB, 50.0, trial_id="right")
    fast = wrong(
        make_configuration(GIB, 90.0, micro_batch=8, trial_id="fast"), FlagKind.LOSS_MISMATCH, 4.0
    )
    other = wrong(
        make_configuration(GIB, 99.0, recipe={"optimizer": "sgd"}, trial_id="other"),
        FlagKind.LOSS_MISMATCH,
        4.0,
    )
    (pick,) = best_in_budgets([right, fast, other], [GIB])
    assert (pick.best, pick.other) == (right, None)
    assert pick.contenders == (right,)
    assert pick.left_out == (fast,)


@pytest.mark.parametrize("run", RUNS)
def test_budgets_and_recommend_show_one_decision(run: str) -> None:
    results = recorded(run)
    for pick in results.budget_picks:
        answer = results.recommend(Constraints(memory_bytes=pick.budget_bytes))
        best = None
        if answer.best is not None:
            best = answer.best.configuration
        assert best is pick.best


@pytest.mark.parametrize("run", [TECHNIQUES, BERT])
@pytest.mark.parametrize("effective_batch", [None, 100, 256])
def test_decision_steps_say_at_every_budget_what_recommend_says(
    run: str, effective_batch: int | None
) -> None:
    results = recorded(run)
    constraints = Constraints(effective_batch=effective_batch)
    steps = decision_steps(results.ranking(constraints))
    for gib in (4, 7, 8, 12, 16, 24, 40, 80, 140):
        answer = results.recommend(replace(constraints, memory_bytes=gib * GIB))
        reached = [step.candidate for step in steps if step.least_bytes <= gib * GIB]
        if not reached:
            assert answer.best is None
            continue
        assert answer.best is not None
        assert reached[-1].configuration.choices == answer.best.configuration.choices
    if effective_batch == 256 and run == BERT:
        # The page said "nothing fits" in 24 GiB here.
        assert steps[0].least_bytes < 24 * GIB


CONFIGURATIONS = st.lists(
    st.builds(
        make_configuration,
        st.integers(1, 30),
        st.floats(1, 100),
        micro_batch=st.sampled_from([1, 2, 4]),
        trial_id=st.sampled_from(["a", "b", "c", "d"]),
    ),
    max_size=8,
)
CHECKS = st.lists(
    st.builds(
        CapCheck,
        trial_id=st.just("check"),
        follows_trial=st.sampled_from(["a", "b", "c", "d"]),
        budget_bytes=st.integers(1, 30),
        outcome=st.just(Outcome.OUT_OF_MEMORY),
        reason=st.just(""),
        memory_bytes=st.none(),
        samples_per_second=st.none(),
    ),
    max_size=3,
)
COMPARISONS = st.lists(
    st.builds(
        PairedComparison,
        trial_id=st.sampled_from(["a", "b"]),
        reference_id=st.sampled_from(["c", "d"]),
        ratio=st.floats(0.9, 1.1),
        ci95=st.just(0.01),
        rounds=st.just(4),
    ),
    max_size=3,
)


@given(CONFIGURATIONS, CHECKS, COMPARISONS)
def test_decision_steps_agree_with_the_pick_at_every_byte(
    configurations: list[Configuration],
    checks: list[CapCheck],
    comparisons: list[PairedComparison],
) -> None:
    ranking = Ranking.of(configurations, Constraints(), checks=checks, comparisons=comparisons)
    steps = decision_steps(ranking)
    for budget in range(35):
        reached = [step.candidate for step in steps if step.least_bytes <= budget]
        if not reached:
            assert ranking.pick(budget) is None
        else:
            assert ranking.pick(budget) is reached[-1]
