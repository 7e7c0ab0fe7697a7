"""The code blocks of the documentation, and the commands that its prose names."""

import importlib
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from tests.support.commands import ROOT

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/results").glob("*.md")),
]
PAGES += [ROOT / "deploy/README.md", ROOT / "CHANGELOG.md"]
LINKING = [*PAGES, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs/decisions").glob("*.md"))]
"""The pages, and those whose code no test runs."""
NEEDS = ("gpu", "cluster", "network", "files")
"""What a block may need that a test has not: written before it, as in ``<!-- needs: gpu -->``."""

_MARKDOWN = MarkdownIt().enable("table")
_NEEDS = re.compile(r"<!-- needs: (\w+) -->\s*")
_COMMAND = re.compile(
    r"(?:\borchestrator |\b-m orchestrator(?:\.| ))(?P<verb>[a-z][a-z_-]*)(?P<rest>[^\n]*)"
)
_PROMPT = "$ "


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A fenced block."""

    line: int
    """Of its first line in the page, from 1."""
    language: str
    code: str
    needs: str
    """One of ``NEEDS``; "" where a test can run it."""

    @property
    def commands(self) -> list[tuple[str, str]]:
        """(command, the output shown below it) of a console session; a script is one command that
        shows nothing.
        """
        if self.language != "console":
            return [(self.code, "")]
        parts = re.split(rf"^{re.escape(_PROMPT)}", self.code, flags=re.MULTILINE)
        assert not parts[0].strip(), f"line {self.line}: a console block begins with a prompt"
        return [
            (command, shown) for command, _, shown in (part.partition("\n") for part in parts[1:])
        ]


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page."""
    found, needs = [], ""
    for token in _MARKDOWN.parse(page.read_text(encoding="utf-8")):
        if token.type == "html_block" and (marker := _NEEDS.fullmatch(token.content)):
            needs = marker[1]
        elif token.type == "fence":
            assert token.map is not None
            found.append(
                Block(
                    line=token.map[0] + 2,
                    language=token.info.strip(),
                    code=token.content,
                    needs=needs,
                )
            )
        if token.type != "html_block":
            needs = ""
    return found


def spans(page: Path) -> Iterator[str]:
    """Every piece of code named in passing: `like this`."""
    for token in _MARKDOWN.parse(page.read_text(encoding="utf-8")):
        yield from (child.content for child in token.children or () if child.type == "code_inline")


def links(page: Path) -> Iterator[str]:
    """Where a page's links and pictures lead, those to other sites left out."""
    for token in _MARKDOWN.parse(page.read_text(encoding="utf-8")):
        for child in token.children or ():
            target = str(child.attrs.get("href") or child.attrs.get("src") or "")
            if target and "://" not in target:
                yield target.partition("#")[0]


def calls(text: str) -> Iterator[tuple[str, Sequence[str]]]:
    """(verb, arguments) of every call of this program in a piece of shell; what is optional, in
    [...], is taken.
    """
    for found in _COMMAND.finditer(text.replace("\\\n", " ")):
        own = re.split(r"['\"]|[;|&<>)]", found["rest"])[0]
        yield (
            found["verb"].replace("-", "_"),
            shlex.split(re.sub(r"[\[\]]", " ", own), comments=True),
        )


def parser_of(verb: str) -> Any:
    """The parser that ``orchestrator.VERB`` reads its arguments with."""
    return importlib.import_module(f"orchestrator.{verb}").command_line()
