"""The written form of a technique with parameters: ``lora(r=16,target_modules=all-linear)``.

The value of an axis is a text in every column, label and id. This module alone writes and reads it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

_WORD = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)
"""A text that needs no quotes."""
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_KEYWORDS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}
_MOST_BITS = 63
"""Parquet's widest integer has 64 bits, and one of them is the sign."""
_DEEPEST = 8
"""The deepest nesting of lists and mappings, so that the reader cannot overflow the stack."""


class ParametersError(ValueError):
    """A text is not the written form of a technique with parameters."""


def written(name: str, parameters: Mapping[str, Any]) -> str:
    """The canonical text of a technique: parameters in alphabetical order, without spaces.

    Without parameters it is the name alone. Raises ParametersError for a value that is neither
    None, a boolean, a finite number, a text, nor a list or mapping of these.
    """
    if not parameters:
        return name
    items = [f"{key}={_value_text(parameters[key])}" for key in sorted(parameters)]
    return f"{name}({','.join(items)})"


def read(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the parameters in a written form; spaces between its parts are allowed.

    Raises ParametersError, which says what is wrong.
    """
    reader = _Reader(text)
    name = reader.word("a name")
    parameters: dict[str, Any] = {}
    if reader.rest():
        reader.expect("(")
        parameters = reader.parameters()
    if reader.rest():
        raise ParametersError(f'"{reader.rest()}" follows the closing parenthesis')
    return name, parameters


def _value_text(value: Any) -> str:
    match value:
        case None | bool():
            return json.dumps(value)
        case int():
            return str(value)
        case float():
            if not math.isfinite(value):
                raise ParametersError(f"{value} is not a finite number")
            return repr(value)
        case str():
            return _quoted_if_needed(value)
        case list() | tuple():
            return f"[{','.join(map(_value_text, value))}]"
        case Mapping():
            items = [f"{_quoted_if_needed(key)}:{_value_text(value[key])}" for key in sorted(value)]
            return f"{{{','.join(items)}}}"
        case _:
            raise ParametersError(f"a {type(value).__name__} is not a plain value")


def _quoted_if_needed(text: str) -> str:
    # A word such as "true" would be read as a boolean.
    if _WORD.fullmatch(text) and text not in _KEYWORDS:
        return text
    return json.dumps(text)


class _Reader:
    """Reads a written form from left to right."""

    def __init__(self, text: str) -> None:
        self._rest = text

    def rest(self) -> str:
        """The text that has not been read yet, without spaces before it."""
        return self._rest.lstrip()

    def word(self, what: str) -> str:
        """The next word. ``what`` describes it in an error."""
        word = self._match(_WORD)
        if word is None:
            raise self._missing(what)
        return word

    def expect(self, symbol: str) -> None:
        """Read a sign. Raises ParametersError if it is not the next one."""
        if not self._accepts(symbol):
            raise self._missing(f'"{symbol}"')

    def parameters(self) -> dict[str, Any]:
        """``name=value,...)``."""
        parameters: dict[str, Any] = {}
        for _ in self._items(")"):
            name = self.word("the name of a parameter")
            if name in parameters:
                raise ParametersError(f"{name} is given twice")
            self.expect("=")
            parameters[name] = self._value(depth=0)
        return parameters

    def _value(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ParametersError("the values are nested too deeply")
        if self._accepts("["):
            return [self._value(depth + 1) for _ in self._items("]")]
        if not self._accepts("{"):
            return self._scalar()
        mapping: dict[str, Any] = {}
        for _ in self._items("}"):
            key = self._scalar()
            if not isinstance(key, str):
                raise ParametersError(f"a name in a mapping must be a text, and {key} is not")
            if key in mapping:
                raise ParametersError(f"{key} is given twice in a mapping")
            self.expect(":")
            mapping[key] = self._value(depth + 1)
        return mapping

    def _items(self, end: str) -> Iterator[None]:
        """Yields before each item up to the sign ``end``; the items have commas between them."""
        is_first = True
        while not self._accepts(end):
            if not is_first:
                self.expect(",")
            is_first = False
            yield

    def _scalar(self) -> Any:
        if (quoted := self._match(_TEXT)) is not None:
            try:
                return json.loads(quoted)
            except ValueError:
                raise ParametersError(f"{quoted} is no text in double quotes") from None
        if (number := self._match(_NUMBER)) is not None:
            return _number(number)
        word = self.word("a value")
        return _KEYWORDS.get(word, word)

    def _accepts(self, symbol: str) -> bool:
        return self._match(re.compile(re.escape(symbol))) is not None

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self.rest())
        if match is None:
            return None
        self._rest = self.rest()[match.end() :]
        return match[0]

    def _missing(self, what: str) -> ParametersError:
        rest = f'"{self.rest()}"' if self.rest() else "the end"
        return ParametersError(f"{what} is missing before {rest}")


def _number(text: str) -> int | float:
    if re.fullmatch(r"-?\d+", text):
        integer = int(text)
        if integer.bit_length() > _MOST_BITS:
            raise ParametersError(f"{text} is beyond the integers of 64 bits")
        return integer
    number = float(text)
    if not math.isfinite(number):
        raise ParametersError(f"{text} is beyond the numbers of 64 bits")
    return number
