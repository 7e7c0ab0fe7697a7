"""Safe YAML and JSON that remember the line of every key, and how every scalar was written."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from orchestrator.planning.problems import ConfigError, KeyPath, Problem, dotted


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A file's top-level mapping; ``lines`` (from 1) and ``written`` (scalars as typed) by key path."""

    file: str
    value: dict[str, Any]
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    written: Mapping[KeyPath, str] = field(default_factory=dict)

    def problem(self, at: KeyPath, message: str) -> Problem:
        """A problem of the value at ``at``, or of the nearest enclosing one that the file has."""
        known = next((at[:end] for end in range(len(at), 0, -1) if at[:end] in self.lines), ())
        return Problem(
            file=self.file, line=self.lines.get(known, 1), key=dotted(at), message=message
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A mapping inside a document, or all of another file that the document names."""

    document: Document
    at: KeyPath
    value: dict[str, Any]

    def problem(self, at: KeyPath, message: str) -> Problem:
        """A problem of the value at ``at`` within this part."""
        return self.document.problem((*self.at, *at), message)


def part_of(document: Document, key: str) -> Part | None:
    """The mapping under a top-level key, or in the file that the key names (relative to the document).

    None where the key is absent or neither of the two. Raises ConfigError on a file that cannot be read.
    """
    match document.value.get(key):
        case dict() as value:
            return Part(document=document, at=(key,), value=value)
        case str() as name:
            path = Path(document.file).parent / name
            if not os.path.isfile(path):  # a name too long for any file is no error to it
                raise ConfigError([document.problem((key,), f"there is no file {path}")])
            other = read_document(path)
            return Part(document=other, at=(), value=other.value)
        case _:
            return None


def read_document(path: Path) -> Document:
    """The mapping in a YAML or JSON file. Raises ConfigError: unreadable, malformed, empty, not a mapping."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(
            [Problem(file=str(path), line=1, message=f"cannot read it: {reason}")]
        ) from None
    if path.suffix == ".json":
        text = text.replace("\t", " ")  # JSON is YAML but for tabs between its tokens
    return _Reader(str(path)).read(text)


class _Loader(yaml.SafeLoader):
    """Safe YAML 1.1, but 5e-5 is a number as in YAML 1.2 and in Python, not a text."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """As YAML says, but what is overridden is dropped at once: merges of merges would grow exponentially."""
        super().flatten_mapping(node)
        # A key that is no plain word is refused later, and until then nobody's equal.
        last = {k.value if isinstance(k, yaml.ScalarNode) else id(k): (k, v) for k, v in node.value}
        node.value = list(last.values())


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


_PLAIN = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_DEEPEST, _MOST_VALUES = 64, 100_000
"""Beyond these a file is a mistake or an attack: a few aliases of aliases can stand for more than any memory holds."""


_TOO_MANY = f"more than {_MOST_VALUES:,} values, aliases (*) counted each time"
_TOO_DEEP = f"nested deeper than {_DEEPEST} levels"


def _is_text(value: str) -> bool:
    """No NUL, which no path can hold, and no half of a surrogate pair, which no terminal can show."""
    return not re.search("[\0\ud800-\udfff]", value)


def _short(written: str) -> str:
    return f'"{written}"' if len(written) <= 40 else f'"{written[:40]}…"'


class _Reader:
    def __init__(self, file: str) -> None:
        self._file = file
        self._problems: list[Problem] = []
        self._lines: dict[KeyPath, int] = {}
        self._written: dict[KeyPath, str] = {}
        self._open: set[int] = set()
        self._flat: set[int] = set()

    def read(self, text: str) -> Document:
        loader: Any = None
        value: Any = None
        try:
            loader = _Loader(text)
            node = loader.get_single_node()
            value = None if node is None else self._value(loader, node, ())
        except yaml.MarkedYAMLError as error:
            mark, start = error.problem_mark or error.context_mark, error.context_mark
            context = (
                f", {error.context} that starts on line {start.line + 1}"
                if error.context and start
                else ""
            )
            self._complain(
                mark.line + 1 if mark else 1, f"not valid YAML: {error.problem}{context}"
            )
        except yaml.YAMLError as error:
            self._complain(1, f"not valid YAML: {str(error).splitlines()[0]}")
        except RecursionError:
            self._complain(1, _TOO_DEEP)
        else:
            if value is None:
                self._complain(1, "the file is empty; it needs at least a model")
            elif not isinstance(value, dict):
                self._complain(1, "the top level must be a mapping of keys to values")
        if self._problems:
            raise ConfigError(self._problems)
        return Document(file=self._file, value=value, lines=self._lines, written=self._written)

    def _complain(self, line: int, message: str, key: str = "") -> None:
        self._problems.append(Problem(file=self._file, line=line, key=key, message=message))

    def _value(self, loader: Any, node: yaml.Node, at: KeyPath) -> Any:
        self._lines.setdefault(at, node.start_mark.line + 1)
        if len(self._lines) > _MOST_VALUES:
            self._complain(node.start_mark.line + 1, _TOO_MANY)
            raise ConfigError(self._problems)
        if isinstance(node, yaml.ScalarNode):
            self._written[at] = node.value
            return self._scalar(loader, node, at)
        if len(at) >= _DEEPEST:
            self._complain(node.start_mark.line + 1, _TOO_DEEP)
            return None
        if id(node) in self._open:
            self._complain(
                node.start_mark.line + 1, "an alias (*) inside its own anchor (&)", dotted(at)
            )
            return None
        if node.tag not in _PLAIN:
            self._complain(
                node.start_mark.line + 1,
                f"the tag {node.tag} makes objects; use plain YAML",
                dotted(at),
            )
        self._open.add(id(node))
        if isinstance(node, yaml.MappingNode):
            value: Any = self._mapping(loader, node, at)
        else:
            value = [
                self._value(loader, item, (*at, index)) for index, item in enumerate(node.value)
            ]
        self._open.discard(id(node))
        return value

    def _scalar(self, loader: Any, node: yaml.ScalarNode, at: KeyPath) -> Any:
        line, kind, written = (
            node.start_mark.line + 1,
            node.tag.rpartition(":")[2],
            _short(node.value),
        )
        try:
            value = loader.construct_object(node)
        except (
            ValueError,
            KeyError,
            IndexError,
            AttributeError,
        ):  # what PyYAML's constructors raise
            self._complain(line, f"{written} is no {kind}; for text use quotes", dotted(at))
            return None
        if not isinstance(value, (str, int, float, bool, type(None))):
            message = (
                f"YAML reads {written} as a {kind}, which nothing here takes; for text use quotes"
            )
            self._complain(line, message, dotted(at))
        elif isinstance(value, int) and value.bit_length() > 63:
            self._complain(line, "is beyond the integers of 64 bits", dotted(at))
        elif isinstance(value, str) and not _is_text(value):
            self._complain(line, "holds what is not a character (NUL or a surrogate)", dotted(at))
        return value

    def _mapping(self, loader: Any, node: yaml.MappingNode, at: KeyPath) -> dict[str, Any]:
        if (
            id(node) not in self._flat
        ):  # an anchored mapping is met once more at each of its aliases
            self._flat.add(id(node))
            self._refuse_duplicates(node, at)
            loader.flatten_mapping(node)
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or not _is_text(key_node.value):
                self._complain(
                    key_node.start_mark.line + 1, "a key must be a plain word", dotted(at)
                )
                continue
            # A key is always its text: YAML would read `on:` as the boolean true, and `8:` as a number.
            key = key_node.value
            self._lines[(*at, key)] = key_node.start_mark.line + 1
            mapping[key] = self._value(loader, value_node, (*at, key))
        return mapping

    def _refuse_duplicates(self, node: yaml.MappingNode, at: KeyPath) -> None:
        first: dict[str, int] = {}
        for key_node, _ in node.value:
            line, written = key_node.start_mark.line + 1, str(key_node.value)
            if written in first:
                self._complain(
                    line,
                    f"given twice; the first is on line {first[written]}",
                    dotted((*at, written)),
                )
            first.setdefault(written, line)
