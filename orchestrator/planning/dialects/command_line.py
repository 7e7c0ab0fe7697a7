"""The arguments of a training command in a shell script or a text."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

_VARIABLE = re.compile(r"\$\{?(\w+)(?::?-([^}]*))?\}?")
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")
_QUOTIENT = re.compile(r"\$\((?:expr|\() *(\d+) */ *(\d+) *\)?\)")
"""How a script divides a batch among GPUs."""
_OPERATORS = (";", "&&", "||", "|", "&")


def commands(text: str) -> Iterator[tuple[list[str], Mapping[str, Any]]]:
    """Each command of a script: its words before the first option, and its options. ``--key
    value``, ``--key=value``, a switch (true) and a list of values are read; variables that the
    script sets are replaced, and nothing is run."""
    variables: dict[str, str] = {}
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        line = _QUOTIENT.sub(_quotient, _replaced(line, variables))
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        words = [word for word in words if word not in _OPERATORS]
        while words and re.match(r"\w+=", words[0]):
            name, _, value = words.pop(0).partition("=")
            variables[name] = value
        if any(word.startswith("--") for word in words):
            yield _read(words)


def _read(words: list[str]) -> tuple[list[str], dict[str, Any]]:
    first = next(index for index, word in enumerate(words) if word.startswith("--"))
    # A launcher has options of its own before the script: ``accelerate launch --x 1 train.py``.
    scripts = [index for index, word in enumerate(words) if word.endswith(".py")]
    first = max([first, *(index + 1 for index in scripts)])
    options: dict[str, Any] = {}
    name = ""
    for word in words[first:]:
        if word.startswith("--"):
            name, has_value, value = word[2:].partition("=")
            name = name.replace("-", "_")
            options[name] = _value(value) if has_value else True
        elif name:
            earlier = options[name]
            options[name] = _value(word) if earlier is True else [*_listed(earlier), _value(word)]
    return words[:first], options


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _value(word: str) -> Any:
    if _NUMBER.fullmatch(word):
        return float(word) if re.search(r"[.eE]", word) else int(word)
    if word.startswith(("{", "[")) or word.lower() in ("true", "false", "none", "null"):
        try:
            return None if word.lower() == "none" else yaml.safe_load(word)
        except yaml.YAMLError:
            return word
    return word


def _quotient(found: re.Match[str]) -> str:
    return str(int(found[1]) // max(1, int(found[2])))


def _replaced(word: str, variables: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda found: variables.get(found[1], found[2] or found[0]), word)
