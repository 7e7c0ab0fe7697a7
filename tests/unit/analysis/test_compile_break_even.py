"""After how many steps compiling has paid for its first one."""

import math
from typing import Any

import pytest

from orchestrator.analysis.dataset import break_even_steps

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


@pytest.mark.parametrize(
    ("eager", "compiled", "steps"),
    [
        # A minute more in the first step, and a tenth of a second less in each later one.
        ((1.0, 0.3), (61.0, 0.2), pytest.approx(600.0)),
        ((1.0, 0.2), (61.0, 0.2), math.inf),
        ((5.0, 0.3), (4.0, 0.2), 0.0),
    ],
)
def test_compiling_has_paid_when_later_steps_have_saved_what_the_first_took_longer(
    eager, compiled, steps
):
    rows = [row("a", "none", *eager), row("b", "inductor", *compiled)]
    assert break_even_steps(rows, AXES) == {"b": steps}
    # A sweep without the axis says nothing.
    assert break_even_steps(rows, {"precision": "precision"}) == {}


@pytest.mark.parametrize(
    "other",
    [
        {"precision": "fp32"},
        {"environment_id": "two"},
        {"outcome": "failed"},
        {"step_seconds_median": None},
    ],
)
def test_without_an_eager_trial_otherwise_equal_nothing_is_said(other):
    rows = [row("a", "none", 1.0, 0.3, **other), row("b", "inductor", 61.0, 0.2)]
    assert break_even_steps(rows, AXES) == {}


@pytest.mark.parametrize("column", ["compile_cache_hits", "inductor_cache_hits"])
def test_code_from_the_cache_says_nothing_about_the_price(column):
    eager = row("a", "none", 1.0, 0.3)
    cold = row("b", "inductor", 61.0, 0.2, **{column: 0})
    warm = row("c", "inductor", 5.0, 0.2, **{column: 1})
    slow = row("d", "inductor", 5.0, 0.4, **{column: 1})
    steps = break_even_steps([eager, cold, warm, slow], AXES)
    assert steps == {"b": pytest.approx(600.0), "d": math.inf}
