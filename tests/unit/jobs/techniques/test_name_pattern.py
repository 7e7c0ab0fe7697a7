"""Names that hold a number, such as ``budget_0.35``."""

from __future__ import annotations

import pytest

from jobs.techniques import AXES

ACTIVATIONS = AXES["activations"]


@pytest.mark.parametrize(
    ("name", "share"), [("budget_0.05", 0.05), ("budget_0.37", 0.37), ("budget_0.001", 0.001)]
)
def test_name_with_a_number_is_a_row_with_that_number(name: str, share: float) -> None:
    variant = ACTIVATIONS.variant(name)
    assert variant.hooks["partitioner"].arguments == {"budget": share}
    assert f"{share * 100:g} %" in variant.doc


@pytest.mark.parametrize(
    "name",
    [
        "budget_0",
        "budget_0.0",
        "budget_0.50",
        "budget_.5",
        "budget_00.5",
        "budget_1.0",
        "budget_1.5",
        "budget_5e-2",
        "budget_-0.5",
        "budget_0.5 ",
        "budget_0.5\n",
        "budget_",
        "Budget_0.5",
        "budget_0.٥",
        "xbudget_0.5",
    ],
)
def test_second_spelling_of_a_number_is_unknown(name: str) -> None:
    assert not ACTIVATIONS.is_name(name)
    with pytest.raises(KeyError):
        ACTIVATIONS.variant(name)


def test_listed_name_is_the_row_that_the_pattern_makes() -> None:
    pattern = ACTIVATIONS.pattern
    assert pattern is not None
    listed = [name for name in ACTIVATIONS.variants if name.startswith("budget_")]
    assert listed
    for name in listed:
        assert ACTIVATIONS.variants[name] == pattern.variant(name)
