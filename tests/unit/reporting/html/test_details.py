"""Pairs of configurations that the page explains."""

from __future__ import annotations

from pathlib import Path

from orchestrator.analysis.dataset import load_dataset
from orchestrator.reporting.html.details import MAX_EXPLAINED, explained_pairs
from tests.support.records import make_grid, write_run


def test_explained_pairs_are_those_of_picks_default_and_front(tmp_path: Path) -> None:
    dataset = load_dataset(write_run(tmp_path, make_grid(), budgets=[2**33]))
    results = dataset.main
    index_of = {own.trial_ids[0]: index for index, own in enumerate(results.configurations)}
    pairs = explained_pairs(dataset, index_of)
    assert 0 < len(pairs) <= MAX_EXPLAINED * (MAX_EXPLAINED - 1) / 2
    indices = {int(part) for key in pairs for part in key.split(",")}
    best = results.budget_picks[0].best
    assert index_of[best.trial_ids[0]] in indices
    for key, text in pairs.items():
        first, second = map(int, key.split(","))
        assert first < second
        assert text.startswith(f"A {results.configurations[first].trial_ids[0]}: ")
        assert f"B {results.configurations[second].trial_ids[0]}: " in text


def test_explained_pairs_leave_out_rows_that_the_page_does_not_hold(tmp_path: Path) -> None:
    dataset = load_dataset(write_run(tmp_path, make_grid()))
    assert explained_pairs(dataset, {}) == {}
