"""Changes values of keys in the text of a file, and leaves all other text as it is."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

Edits = Mapping[str, Any]
"""Key -> its new value; ``a.b`` is b in the mapping a."""


def edited(text: str, suffix: str, edits: Edits, *, options: Iterable[str] | None = None) -> str:
    """The text of a YAML or JSON file with other values of some keys, or that of a command line,
    which has ``options``."""
    for key, value in edits.items():
        if options is not None:
            text = _option(text, key, value, options)
        elif suffix == ".json":
            text = _json_value(text, key, value)
        else:
            text = _yaml_value(text, key.split("."), value)
    return text


def _option(text: str, key: str, value: Any, own: Iterable[str]) -> str:
    written = f"--{key} {_plain(value)}"
    pattern = re.compile(rf"{_named(key)}(?:(?:=|[ \t]+)(?!--|\\)[^\s\\]+)*")
    if pattern.search(text):
        return pattern.sub(lambda _: written, text)
    # A new option stands before one of its own: others may be of its launcher or another command.
    before = next((name for name in map(_named, own) if re.search(name, text)), r"--(?=\w)")
    return re.sub(before, lambda found: f"{written} {found[0]}", text, count=1)


def _named(key: str) -> str:
    return rf"--{re.escape(key).replace('_', '[-_]')}\b"


def _json_value(text: str, key: str, value: Any) -> str:
    content = json.loads(text)
    *outer, last = key.split(".")
    at = content
    for name in outer:
        at = at.setdefault(name, {})
    at[last] = value
    return json.dumps(content, indent=2) + "\n"


def _yaml_value(text: str, path: list[str], value: Any) -> str:
    """With the value of one key: on its own line, beside the line's comment."""
    lines = text.splitlines(keepends=True)
    start, end = _block(lines, path[0], 0, len(lines), indent="")
    if start is None:
        new = value if len(path) == 1 else {path[1]: value}
        ending = "" if text.endswith("\n") or not text else "\n"
        return f"{text}{ending}{path[0]}: {_inline(new)}\n"
    if len(path) > 1:
        return _inner_value(lines, start, end, path, value)
    return "".join([*lines[:start], _line(lines[start], value), *lines[end:]])


def _inner_value(lines: list[str], start: int, end: int, path: list[str], value: Any) -> str:
    following = lines[start + 1] if end > start + 1 else ""
    indent = following[: len(following) - len(following.lstrip())]
    first, last = _block(lines, path[1], start + 1, end, indent=indent)
    if first is not None:
        return "".join([*lines[:first], _line(lines[first], value), *lines[last:]])
    # A mapping in braces, or without this key.
    content = yaml.safe_load("".join(lines[start:end]))[path[0]] or {}
    changed = _line(lines[start], {**content, path[1]: value})
    return "".join([*lines[:start], changed, *lines[end:]])


def _block(
    lines: list[str], key: str, start: int, end: int, *, indent: str
) -> tuple[int | None, int]:
    """Line of a key, and the first line after its value."""
    for index in range(start, end):
        if re.match(rf"{indent}[\"']?{re.escape(key)}[\"']?\s*:(\s|$)", lines[index]):
            after = index + 1
            inside = (f"{indent} ", f"{indent}\t", f"{indent}- ")
            while after < end and lines[after].startswith(inside):
                after += 1
            return index, after
    return None, end


def _line(line: str, value: Any) -> str:
    comment = re.search(r"\s+#.*$", line.rstrip("\n"))
    head = line[: line.index(":")]
    return f"{head}: {_inline(value)}{comment[0] if comment else ''}\n"


def _inline(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6)
    return text.removesuffix("...\n").strip()


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return json.dumps(value)
    return f"'{json.dumps(value)}'" if isinstance(value, list | dict) else str(value)
