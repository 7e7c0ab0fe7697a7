"""Safe YAML and JSON that remember the line of every key, and how every scalar was written."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from orchestrator.planning.problems import ConfigError, KeyPath, Problem, dotted, guess_after
from orchestrator.units import listed

_MAX_DEPTH = 64
_MAX_VALUES = 100_000
"""A file beyond either limit is a mistake or an attack: aliases of aliases can fill any memory."""
_TOO_DEEP = f"nested deeper than {_MAX_DEPTH} levels"
MAX_BYTES = 2**20
"""The largest file that is parsed: PyYAML takes seconds for every mebibyte."""
Source = Path | Mapping[str, Any]
"""A configuration's file, or the configuration itself."""
_PLAIN_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A mapping of a file, with the line and the spelling of the file's values."""

    file: str
    value: dict[str, Any]
    at: KeyPath = ()
    """Where the mapping is in the file; empty: it is all of the file."""
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    """Path of a value -> its line, from 1."""
    written: Mapping[KeyPath, str] = field(default_factory=dict)
    """Path of a scalar -> its text as it was typed."""

    def problem(self, at: KeyPath, message: str) -> Problem:
        """A problem of the value at ``at``, at its line or that of the nearest enclosing value."""
        at = enclosing = (*self.at, *at)
        # A key that is missing has no line, but its section has.
        while enclosing and enclosing not in self.lines:
            enclosing = enclosing[:-1]
        line = self.lines.get(enclosing, 1)
        return Problem(file=self.file, line=line, key=dotted(at), message=message)


def part_of(document: Document, key: str) -> Document | None:
    """The mapping under a key, or all of the file that the key names (beside the document). None if
    the key is absent or has another type. Raises ConfigError on a file that cannot be read."""
    value = document.value.get(key)
    if isinstance(value, dict):
        return replace(document, at=(*document.at, key), value=value)
    if not isinstance(value, str):
        return None
    # Like every path of a config, it is relative to the file.
    path = Path(document.file).parent / value
    # os.path.isfile is False for a name that is too long; Path.is_file raises.
    if not os.path.isfile(path):
        raise ConfigError([document.problem((key,), f"there is no file {path}")])
    return read_document(path)


def folder_of(source: Source) -> Path:
    """The folder that paths in a configuration are relative to."""
    return source.absolute().parent if isinstance(source, Path) else Path.cwd()


def read_document(source: Source) -> Document:
    """The mapping in a YAML or JSON file, or one that was made in Python, whose values have no
    lines. Raises ConfigError if the file has none."""
    if isinstance(source, Path):
        return _read_file(source)
    return read_text("configuration", json.dumps(source, default=str))


def read_text(name: str, text: str) -> Document:
    """The mapping in a text that is in no file, so that its values have no lines. Raises
    ConfigError if it has none."""
    return replace(_Reader(name).read(text), lines={(): 0})


def _read_file(path: Path) -> Document:
    try:
        # No more than the limit is read: a device has no end, and a pipe no size.
        with open(path, "rb", opener=_open_now) as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise _unreadable(path, "larger than 1 MiB, which no configuration is")
        text = content.decode("utf-8")
    except FileNotFoundError:
        meant = guess_after(str(path), map(str, path.parent.glob("*.y*ml")))
        raise _unreadable(path, f"there is no such file{meant}") from None
    except IsADirectoryError:
        raise _unreadable(path, f"it is a folder; {_configurations(path)}") from None
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from None
    except UnicodeDecodeError:
        reason = "not UTF-8 text"
        if path.suffix == ".bin":
            # The Trainer saves its arguments as training_args.bin.
            reason = "a pickle, which could run code; write TrainingArguments.to_json_string()"
        raise _unreadable(path, reason) from None
    if path.suffix == ".json":
        text = text.replace("\t", " ")  # JSON is YAML except for tabs between its tokens
    return _Reader(str(path)).read(text)


def _configurations(folder: Path) -> str:
    names = sorted(str(path) for path in folder.glob("*.y*ml"))
    return f"it has {listed(names, 3)}" if names else "name a YAML file"


def _open_now(path: str, flags: int) -> int:
    """Open without waiting for the writer of a pipe. A pipe that none writes to is empty."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    # The shell's <(command) may not have written yet, so reading does wait.
    os.set_blocking(descriptor, True)
    return descriptor


def _unreadable(path: Path, reason: str) -> ConfigError:
    return ConfigError([Problem(file=str(path), line=0, message=f"cannot read it: {reason}")])


class Loader(yaml.SafeLoader):
    """Safe YAML 1.1, but 5e-5 is a number as in YAML 1.2 and in Python, not a text."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Resolve merge keys (<<), and drop overridden keys at once. PyYAML keeps overridden keys,
        so that merges of merges grow exponentially."""
        # After PyYAML's own work, a key occurs once for every merge that contains it. A key that is
        # not a plain word is refused later. Until then it equals no other key.
        super().flatten_mapping(node)
        last = {
            key.value if isinstance(key, yaml.ScalarNode) else id(key): (key, value)
            for key, value in node.value
        }
        node.value = list(last.values())


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


class _Reader:
    """Turns YAML nodes into plain values, noting lines, spellings and problems on the way."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._problems: list[Problem] = []
        self._lines: dict[KeyPath, int] = {}
        self._written: dict[KeyPath, str] = {}
        self._open_nodes: set[int] = set()
        """Nodes whose content is being read now. A node inside itself would never end."""
        self._flattened: set[int] = set()
        """Mappings whose merge keys (<<) have been resolved."""
        self._loader: Any = None

    def read(self, text: str) -> Document:
        """The document in a text. Raises ConfigError with every problem."""
        value = self._parsed(text)
        if not self._problems and value is None:
            self._complain(1, "the file is empty; it needs at least a model")
        elif not self._problems and not isinstance(value, dict):
            self._complain(1, "the top level must be a mapping of keys to values")
        # All problems at once, so that the user can fix all of them before the next run.
        if self._problems:
            raise ConfigError(self._problems)
        return Document(file=self._file, value=value, lines=self._lines, written=self._written)

    def _parsed(self, text: str) -> Any:
        try:
            self._loader = Loader(text)
            node = self._loader.get_single_node()
            return None if node is None else self._value(node, ())
        except yaml.YAMLError as error:
            self._complain_of_syntax(text, error)
        except RecursionError:
            self._complain(1, _TOO_DEEP)
        return None

    def _complain_of_syntax(self, text: str, error: Any) -> None:
        if self._file.endswith(".json"):
            try:
                json.loads(text)
            except json.JSONDecodeError as own:
                self._complain(own.lineno, f"not valid JSON: {own.msg}, in column {own.colno}")
                return
        start = getattr(error, "context_mark", None)
        mark = getattr(error, "problem_mark", None) or start
        reason = f"not valid YAML: {getattr(error, 'problem', str(error).splitlines()[0])}"
        if "'\\t'" in reason:
            reason += "; indent by spaces instead of tabs"
        if start and error.context:
            reason += f", {error.context} that starts on line {start.line + 1}"
        self._complain(1 if mark is None else mark.line + 1, reason)

    def _complain(self, where: yaml.Node | int, message: str, at: KeyPath = ()) -> None:
        line = where if isinstance(where, int) else _line_of(where)
        self._problems.append(Problem(file=self._file, line=line, key=dotted(at), message=message))

    def _value(self, node: yaml.Node, at: KeyPath) -> Any:
        self._lines.setdefault(at, _line_of(node))
        if len(self._lines) > _MAX_VALUES:
            many = f"more than {_MAX_VALUES:,} values, aliases (*) counted each time"
            self._complain(node, many)
            raise ConfigError(self._problems)
        if isinstance(node, yaml.ScalarNode):
            self._written[at] = node.value
            return self._scalar(node, at)
        if len(at) >= _MAX_DEPTH:
            self._complain(node, _TOO_DEEP)
            return None
        # PyYAML gives an alias its anchor's own node.
        if id(node) in self._open_nodes:
            self._complain(node, "an alias (*) inside its own anchor (&)", at)
            return None
        return self._collection(node, at)

    def _collection(self, node: yaml.Node, at: KeyPath) -> Any:
        if node.tag not in _PLAIN_TAGS:
            self._complain(node, f"the tag {node.tag} makes objects; use plain YAML", at)
        # Open while its content is read: an alias met meanwhile is inside its own anchor.
        self._open_nodes.add(id(node))
        if isinstance(node, yaml.MappingNode):
            value: Any = self._mapping(node, at)
        else:
            value = [self._value(item, (*at, index)) for index, item in enumerate(node.value)]
        self._open_nodes.discard(id(node))
        return value

    def _scalar(self, node: yaml.ScalarNode, at: KeyPath) -> Any:
        # "tag:yaml.org,2002:timestamp" is a timestamp.
        kind = node.tag.rpartition(":")[2]
        try:
            value = self._loader.construct_object(node)
        except (ValueError, KeyError, IndexError, AttributeError):  # PyYAML's constructors
            self._complain(node, f"{_shown(node.value)} is no {kind}; for text use quotes", at)
            return None
        problem = _scalar_problem(value, node.value, kind)
        if problem:
            self._complain(node, problem, at)
        return value

    def _mapping(self, node: yaml.MappingNode, at: KeyPath) -> dict[str, Any]:
        # An anchored mapping is read again at each of its aliases.
        if id(node) not in self._flattened:
            self._flattened.add(id(node))
            self._refuse_duplicates(node, at)
            self._loader.flatten_mapping(node)
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not (isinstance(key_node, yaml.ScalarNode) and _is_text(key_node.value)):
                self._complain(key_node, "a key must be a plain word", at)
                continue
            # A key is always its text: YAML would read `on:` as true, and `8:` as a number.
            key = key_node.value
            self._lines[(*at, key)] = _line_of(key_node)
            mapping[key] = self._value(value_node, (*at, key))
        return mapping

    def _refuse_duplicates(self, node: yaml.MappingNode, at: KeyPath) -> None:
        first_lines: dict[str, int] = {}
        for key_node, _ in node.value:
            # A key that is a collection has a list of nodes here; it is refused later.
            key = str(key_node.value)
            if key in first_lines:
                message = f"given twice; the first is on line {first_lines[key]}"
                self._complain(key_node, message, (*at, key))
            first_lines.setdefault(key, _line_of(key_node))


def _line_of(node: yaml.Node) -> int:
    """PyYAML counts from 0, people from 1."""
    return int(node.start_mark.line) + 1


def _scalar_problem(value: Any, written: str, kind: str) -> str:
    if isinstance(value, str):
        return "" if _is_text(value) else "holds what is not a character (NUL or a surrogate)"
    if value is not None and not isinstance(value, (int, float)):
        return f"YAML reads {_shown(written)} as a {kind}, which no key takes; for text use quotes"
    # Parquet's widest integer has 64 bits, one of them the sign.
    is_wide = isinstance(value, int) and value.bit_length() > 63
    return "is beyond the integers of 64 bits" if is_wide else ""


def _is_text(value: str) -> bool:
    """No NUL, which no path can hold, and no half of a surrogate pair, which no terminal shows."""
    return not re.search("[\0\ud800-\udfff]", value)


def _shown(written: str) -> str:
    return f'"{written}"' if len(written) <= 40 else f'"{written[:40]}…"'
