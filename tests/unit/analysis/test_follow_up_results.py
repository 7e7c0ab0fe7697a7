"""Tie-breaks between close configurations, and cap checks."""

import pytest

from jobs.record import Outcome
from jobs.spec import Purpose
from orchestrator.analysis.follow_up_results import (
    cap_checks,
    decisive_check,
    fastest_of,
    paired_comparisons,
)
from tests.support.configurations import make_configuration


def round_row(
    trial_id: str, number: int, speed: float | None, **fields: object
) -> dict[str, object]:
    return {
        "purpose": Purpose.TIE_BREAK,
        "outcome": Outcome.OK,
        "follows_trial": trial_id,
        "compared_with": ["a", "b"],
        "round": number,
        "gpu_uuid": "GPU-1",
        "samples_per_second": speed,
        **fields,
    }


def rounds(*speeds: tuple[float, float]) -> list[dict[str, object]]:
    rows = []
    for number, (first, second) in enumerate(speeds):
        rows += [round_row("a", number, first), round_row("b", number, second)]
    return rows


def test_paired_comparisons_use_the_ratio_of_each_round():
    # The GPU slows down from round to round; the ratio does not.
    (comparison,) = paired_comparisons(rounds((100, 102), (90, 91.8), (80, 81.6)))
    assert (comparison.trial_id, comparison.reference_id) == ("b", "a")
    assert comparison.ratio == pytest.approx(1.02)
    assert comparison.rounds == 3
    assert comparison.is_faster
    assert not comparison.is_slower


def test_several_challengers_have_wider_intervals_so_that_none_wins_by_chance():
    speeds = ((100, 103), (100, 101), (100, 105))
    (alone,) = paired_comparisons(rounds(*speeds))
    rows = [{**row, "compared_with": ["a", "b", "c", "d"]} for row in rounds(*speeds)]
    rows += [round_row("c", n, 99, compared_with=["a", "b", "c", "d"]) for n in range(3)]
    rows += [round_row("d", n, 99, compared_with=["a", "b", "c", "d"]) for n in range(3)]
    one_of_three = paired_comparisons(rows)[0]
    # Student's t with 2 degrees of freedom at 1 - 0.025 / 3 is 7.649, and at 0.975 it is 4.303.
    assert one_of_three.ci95 / alone.ci95 == pytest.approx(7.649 / 4.303, rel=1e-3)


def test_paired_comparisons_need_two_complete_rounds():
    assert paired_comparisons(rounds((100, 102))) == ()
    incomplete = [*rounds((100, 102)), round_row("a", 1, 100), round_row("b", 2, 100)]
    assert paired_comparisons(incomplete) == ()
    other_gpu = [
        *rounds((100, 102)),
        round_row("a", 1, 100),
        round_row("b", 1, 99, gpu_uuid="GPU-2"),
    ]
    assert paired_comparisons(other_gpu) == ()


def test_fastest_of_is_the_first_unless_a_tie_break_was_won():
    first = make_configuration(1, 100.0, trial_id="a")
    second = make_configuration(1, 99.0, trial_id="b")
    won = paired_comparisons(rounds((100, 102), (100, 102.1)))
    unsure = paired_comparisons(rounds((100, 102), (100, 98)))
    assert fastest_of([first, second], won) is second
    assert fastest_of([first, second], unsure) is first
    assert fastest_of([], won) is None


def check_row(budget: int, outcome: Outcome, memory: int | None) -> dict[str, object]:
    return {
        "purpose": Purpose.CAP_CHECK,
        "trial_id": f"check-{budget}",
        "follows_trial": "a",
        "memory_cap_bytes": budget,
        "outcome": outcome,
        "reason": "",
        "device_peak_bytes": memory,
        "samples_per_second": 100.0,
    }


def test_decisive_check_follows_from_other_budgets():
    checks = cap_checks(
        [
            check_row(10, Outcome.OUT_OF_MEMORY, None),
            check_row(20, Outcome.OK, 19),
            check_row(30, Outcome.CRASHED, None),
            {"purpose": Purpose.SEARCH},
        ]
    )
    decisions = {budget: decisive_check(checks, ("a",), budget) for budget in (5, 10, 15, 20, 40)}
    assert {budget: check and check.fits for budget, check in decisions.items()} == {
        5: False,
        10: False,
        15: None,
        20: True,
        40: True,
    }
    assert decisive_check(checks, ("other",), 20) is None


@pytest.mark.parametrize(("peak", "fails"), [(21, True), (None, False)])
def test_cap_check_that_takes_more_than_its_budget_fails(peak, fails):
    (check,) = cap_checks([check_row(20, Outcome.OK, peak)])
    assert check.fails is fails
    assert not check.fits
