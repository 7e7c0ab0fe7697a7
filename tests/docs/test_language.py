"""The words of the documentation and of the code: short sentences, plain words, working links."""

import ast
import io
import re
import statistics
import tokenize
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
MEAN_WORDS = 18
MOST_WORDS = 30
PRIVATE_WORDS = re.compile(
    r"\b(whoever|somebody|nobody|docs' way|visitor|starvation|foretold|fatter|leaner)\b",
    re.IGNORECASE,
)
PRIVATE_WORDS_IN_CODE = re.compile(
    rf"{PRIVATE_WORDS.pattern}|\b(told|alike|starved)\b|\b(is|are|be) out\b(?! of)", re.IGNORECASE
)
"""In comments and docstrings; for names the same words without their spaces."""
PACKAGES = ("orchestrator", "jobs", "tests")
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
def test_sentences_of_a_page_are_short(page):
    lengths = {text: len(_WORD.findall(text)) for text in sentences(page)}
    assert [text for text, words in lengths.items() if words > MOST_WORDS] == []
    assert statistics.fmean(lengths.values()) < MEAN_WORDS


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_words_of_a_page_are_the_fields_own(page):
    assert PRIVATE_WORDS.findall(page.read_text(encoding="utf-8")) == []


def described(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every comment and docstring, and of every name as separate words."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
        elif token.type == tokenize.NAME:
            # An underscore is no word boundary of a regular expression.
            yield token.start[0], token.string.replace("_", " ")
    for node in ast.walk(ast.parse(source)):
        # Docstrings, and the strings that describe a constant or a field.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.lineno, str(node.value.value)


@pytest.mark.parametrize("package", PACKAGES)
def test_words_of_the_code_are_the_fields_own(package):
    private = []
    for path in sorted((ROOT / package).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        # Most files have none of the words anywhere, and need not be parsed.
        if not PRIVATE_WORDS_IN_CODE.search(source.replace("_", " ")):
            continue
        for line, text in described(source):
            if PRIVATE_WORDS_IN_CODE.search(text):
                private.append(f"{path.relative_to(ROOT)}:{line}: {text}")
    assert private == []


@pytest.mark.parametrize(
    "source",
    [
        "limit = 1  # nobody asks",
        'def f():\n    """What it was told."""',
        'LIMIT = 1\n"""Trials that are out."""',
        "def test_rows_that_are_measured_alike(): ...",
        "_ALIKE = 1",
    ],
)
def test_words_of_the_code_that_are_private_are_found(source):
    assert any(PRIVATE_WORDS_IN_CODE.search(text) for _, text in described(source))


@pytest.mark.parametrize("source", ["folder = 'nobody'", "# a trial that is out of memory"])
def test_words_of_the_code_that_are_data_are_allowed(source):
    assert not any(PRIVATE_WORDS_IN_CODE.search(text) for _, text in described(source))
