"""How sure an answer is, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.reporting.sections.search_evidence import certainty, counts
from orchestrator.reporting.sections.search_summary import search_sentences
from orchestrator.storage.search_summary import BudgetResult, MeasuredPick, SearchSummary

RESULT = BudgetResult(
    budget_bytes=24 * 2**30,
    recipe="",
    pick=MeasuredPick(trial_id="a", samples_per_second=1.0, memory_bytes=1.0),
    considered=12_345,
    ruled_out=6_000,
    measured=20,
    expected_gain=0.01,
    gain_at_most=0.012,
    confidence=0.95,
    is_settled=False,
)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "gain at most +1.2 % in speed, with 95 % probability"),
        (
            {"gain_at_most": 0.0},
            "none of the unmeasured configurations is faster, with 95 % probability",
        ),
        ({"gain_at_most": 3.0}, "gain at most ×4.00 in speed"),
        ({"gain_at_most": 283.0}, "too little is known"),
        ({"gain_at_most": None}, "not known"),
        ({"pick": None, "is_settled": True}, "nothing considered fits"),
        ({"pick": None}, "whether anything does is not known"),
    ],
)
def test_certainty_says_what_could_still_be_gained(changed: dict[str, Any], words: str) -> None:
    assert words in certainty(replace(RESULT, **changed))


def test_counts_are_readable() -> None:
    expected = "considered 12,345, ruled out without a trial 6,000, measured 20"
    assert counts(RESULT) == expected


def test_report_of_an_answer_search_has_a_sentence_for_each_budget() -> None:
    across = replace(RESULT, budget_bytes=None, recipe="any")
    search = SearchSummary(
        kind="best", planned=12_345, measured=20, skipped={}, results=(RESULT, across)
    )
    _, first, second = search_sentences(search)
    assert first.startswith("Within 24 GiB: considered 12,345")
    assert second.startswith("In the whole memory, of all training recipes:")
