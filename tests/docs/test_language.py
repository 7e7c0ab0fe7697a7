"""The prose of the documentation: short sentences, plain words, links to files that exist."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.docs.blocks import ROOT

PROSE = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "deploy/README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/decisions").glob("*.md")),
    *sorted((ROOT / "docs/results").glob("*.md")),
]
MEAN_WORDS = 15
MOST_WORDS = 30
PRIVATE_WORDS = re.compile(
    r"\b(whoever|somebody|nobody|docs' way|visitor|starvation|foretold|fatter|leaner)\b",
    re.IGNORECASE,
)
_MARKDOWN = MarkdownIt().enable("table")
# A sentence ends before a space and the beginning of another one.
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z0-9`“\"(])")
_WORD = re.compile(r"[\w'’/×%±.-]*\w[\w'’/×%±.-]*")


def paragraphs(page: Path) -> Iterator[str]:
    """The text of each paragraph and list item; code spans count as one word."""
    inside_table = False
    is_heading = False
    for token in _MARKDOWN.parse(page.read_text(encoding="utf-8")):
        inside_table = (inside_table or token.type == "table_open") and token.type != "table_close"
        is_heading = token.type == "heading_open" or (is_heading and token.type != "heading_close")
        if token.type != "inline" or inside_table or is_heading:
            continue
        parts = []
        for child in token.children or ():
            if child.type == "code_inline":
                parts.append("`code`")
            elif child.type in ("softbreak", "hardbreak"):
                parts.append(" ")
            elif child.type == "text":
                parts.append(child.content)
        yield "".join(parts)


def sentences(page: Path) -> list[str]:
    """Every sentence of a page."""
    listed = []
    for paragraph in paragraphs(page):
        listed += [text for text in _SENTENCE_END.split(paragraph) if _WORD.search(text)]
    return listed


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_of_a_page_are_short(page: Path) -> None:
    lengths = {text: len(_WORD.findall(text)) for text in sentences(page)}
    assert [text for text, words in lengths.items() if words > MOST_WORDS] == []
    assert statistics.fmean(lengths.values()) < MEAN_WORDS


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_words_of_a_page_are_the_fields_own(page: Path) -> None:
    assert PRIVATE_WORDS.findall(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_to_files(page: Path) -> None:
    missing = []
    for token in _MARKDOWN.parse(page.read_text(encoding="utf-8")):
        for child in token.children or ():
            target = child.attrs.get("href") or child.attrs.get("src")
            if isinstance(target, str) and not re.match(r"[a-z]+:|#", target):
                path = page.parent / target.partition("#")[0]
                if not path.exists():
                    missing.append(target)
    assert missing == []
