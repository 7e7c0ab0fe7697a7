"""After how many steps compiling has paid for its first one."""

from __future__ import annotations

import math
from typing import Any

import pytest

from orchestrator.analysis.compile_break_even import break_even_steps

AXES = {"compile": "compile", "precision": "precision"}


def row(
    trial_id: str, compile: str, first: float | None, median: float | None, **other: Any
) -> dict[str, Any]:
    """An ok row of one environment in bf16."""
    figures = {"first_step_seconds": first, "step_seconds_median": median}
    return {
        "trial_id": trial_id,
        "outcome": "ok",
        "environment_id": "one",
        "precision": "bf16",
        "compile": compile,
        **figures,
    } | other


def test_what_the_first_step_took_longer_over_what_each_later_one_takes_less() -> None:
    rows = [row("a", "none", 1.0, 0.3), row("b", "inductor", 61.0, 0.2)]
    assert break_even_steps(rows, AXES) == {"b": pytest.approx(600.0)}


def test_compiling_that_saves_nothing_never_pays() -> None:
    rows = [row("a", "none", 1.0, 0.2), row("b", "inductor", 61.0, 0.2)]
    assert break_even_steps(rows, AXES) == {"b": math.inf}


def test_a_faster_first_step_pays_at_once() -> None:
    rows = [row("a", "none", 5.0, 0.3), row("b", "eager", 4.0, 0.2)]
    assert break_even_steps(rows, AXES) == {"b": 0.0}


@pytest.mark.parametrize(
    "other",
    [
        {"precision": "fp32"},
        {"environment_id": "two"},
        {"outcome": "failed"},
        {"step_seconds_median": None},
    ],
)
def test_without_an_eager_trial_otherwise_equal_nothing_is_said(other: dict[str, Any]) -> None:
    rows = [row("a", "none", 1.0, 0.3, **other), row("b", "inductor", 61.0, 0.2)]
    assert break_even_steps(rows, AXES) == {}


def test_a_sweep_without_the_axis_says_nothing() -> None:
    assert break_even_steps([row("a", "none", 1.0, 0.3)], {"precision": "precision"}) == {}


@pytest.mark.parametrize("column", ["compile_cache_hits", "inductor_cache_hits"])
def test_code_from_the_cache_says_nothing_about_the_price(column: str) -> None:
    eager = row("a", "none", 1.0, 0.3)
    cold = row("b", "inductor", 61.0, 0.2, **{column: 0})
    warm = row("c", "inductor", 5.0, 0.2, **{column: 1})
    slow = row("d", "inductor", 5.0, 0.4, **{column: 1})
    steps = break_even_steps([eager, cold, warm, slow], AXES)
    assert steps == {"b": pytest.approx(600.0), "d": math.inf}
