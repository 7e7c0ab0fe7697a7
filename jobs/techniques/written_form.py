"""The written form of a technique with parameters: ``lora(r=16,target_modules=all-linear)``.

The value of an axis is a text in every column, label and id. To read it, its words get quotes and
its signs those of JSON, which the standard library reads.
"""

import functools
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

_WORD = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)
"""A text that needs no quotes."""
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<text>"(?:[^"\\]|\\.)*")
    |(?P<number>-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)
    |(?P<word>[A-Za-z_][\w./-]*)
    |(?P<sign>[][{}:=,])
    )\s*""",
    re.ASCII | re.VERBOSE,
)
_KEYWORDS = ("true", "false", "null")


class ParametersError(ValueError):
    """A text is not the written form of a technique with parameters."""


def written(name: str, parameters: Mapping[str, Any]) -> str:
    """The canonical text of a technique: parameters in alphabetical order, without spaces. Without
    parameters it is the name alone. Raises ParametersError for a value that is neither None, a
    boolean, a finite number, a text, nor a list or mapping of these."""
    if not parameters:
        return name
    items = [f"{key}={_value_text(parameters[key])}" for key in sorted(parameters)]
    return f"{name}({','.join(items)})"


def read(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the parameters in a written form; spaces between its parts are allowed. Raises
    ParametersError, which says what is wrong."""
    name, content = _in_json(text)
    try:
        return name, json.loads(content, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        rest = content[error.pos : -1].strip()
        raise ParametersError(
            f"{error.msg.lower()} before {f'{rest!r}' if rest else 'the end'}"
        ) from None


@functools.lru_cache  # each of tens of thousands of trials has the same few
def _in_json(text: str) -> tuple[str, str]:
    match = re.fullmatch(rf"\s*({_WORD.pattern})\s*(?:\((.*)\)\s*)?", text, re.ASCII | re.DOTALL)
    if match is None:
        raise ParametersError(f'"{text}" is neither a name nor of the form name(parameter=value)')
    return match[1], f"{{{' '.join(_tokens(match[2] or ''))}}}"


def _value_text(value: Any) -> str:
    match value:
        case str():
            return _quoted_if_needed(value)
        case list() | tuple():
            return f"[{','.join(map(_value_text, value))}]"
        case Mapping():
            items = [f"{_quoted_if_needed(key)}:{_value_text(value[key])}" for key in sorted(value)]
            return f"{{{','.join(items)}}}"
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise ParametersError(f"{value} is neither plain nor a finite number") from None


def _quoted_if_needed(text: str) -> str:
    # A word such as "true" would be read as a boolean.
    if _WORD.fullmatch(text) and text not in _KEYWORDS:
        return text
    return json.dumps(text)


def _tokens(text: str) -> Iterator[str]:
    """The text between the parentheses as parts of a JSON object."""
    depth = 0
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ParametersError(f'"{text[position:]}" has no meaning here')
        position = match.end()
        token = match[match.lastgroup or 0]
        if match.lastgroup == "number":
            token = json.dumps(_number(token))
        elif match.lastgroup == "word" and token not in _KEYWORDS:
            token = json.dumps(token)
        elif match.lastgroup == "sign":
            depth += (token in "[{") - (token in "]}")
            if depth < 0 or token == ("=" if depth else ":"):
                raise ParametersError(f'"{token}" is at the wrong place')
            if depth > 8:  # deeper nesting could overflow the stack of the JSON reader
                raise ParametersError("the values are nested too deeply")
            token = token.replace("=", ":")
        yield token


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ParametersError(f"{name} is given twice")
    return dict(pairs)


def _number(text: str) -> int | float:
    if text.lstrip("-").isdigit():
        # Parquet's widest integer has 64 bits, and one of them is the sign.
        if len(text) > 20 or int(text).bit_length() > 63:
            raise ParametersError(f"{text} is beyond the integers of 64 bits")
        return int(text)
    number = float(text)
    if not math.isfinite(number):
        raise ParametersError(f"{text} is beyond the numbers of 64 bits")
    return number
