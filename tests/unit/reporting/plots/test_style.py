"""Colours that pictures and pages share."""

from __future__ import annotations

from orchestrator.reporting.plots.style import PALETTE, RISING, colours_of


def test_colours_of_names_are_the_palette_and_all_differ() -> None:
    assert colours_of(["a", "b", "c"]) == list(PALETTE[:3])
    many = colours_of([f"name {number}" for number in range(40)])
    assert len(set(many)) == 40


def test_colours_of_numbers_rise_from_end_to_end() -> None:
    colours = colours_of([1, 2, 4, 8])
    assert (colours[0], colours[-1]) == (RISING[0], RISING[-1])
    assert colours_of([1, 2]) == list(PALETTE[:2])
    assert colours_of([]) == []
