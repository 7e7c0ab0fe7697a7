"""Long texts are cut between words, never within one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.reporting.terminal.shortening import shortened


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("short", "short"),
        ("two  lines\nof words", "two lines of words"),
        ("one two three four", "one two three …"),
        ("/a/path/longer/than/the/limit.txt was missing", "/a/path/longer/than/the/limit.txt …"),
        ("incomprehensibilities", "incomprehensibilities"),
        ("", ""),
    ],
)
def test_shortened_ends_between_words(text: str, expected: str) -> None:
    limit = 18 if "lines" in text else 16
    assert shortened(text, limit) == expected


@given(st.text(alphabet="ab \n", max_size=60), st.integers(min_value=4, max_value=30))
def test_shortened_holds_whole_words_only(text: str, limit: int) -> None:
    words = text.split()
    kept = shortened(text, limit).removesuffix(" …").split()
    assert kept == words[: len(kept)]
