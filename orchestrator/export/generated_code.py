"""Turns values of a spec into code. Every value in an exported file passes through this module.

A spec may come from a stranger, so every value becomes a literal, every name is checked or taken
from a list, and text for people stays on one line.
"""

import keyword
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_DTYPES = ("float16", "bfloat16", "float32", "float64")
"""Names of torch dtypes that a model may be built with."""
_WITHOUT_MARKUP = str.maketrans({"\\": "/", '"': "'", "`": "'", "<": "‹", "[": "(", "]": ")"})
"""Characters that begin markup or end a docstring -> harmless ones that look similar."""


class NotExportableError(ValueError):
    """A row cannot be exported. The message says why, and has no control characters."""

    def __init__(self, text: str) -> None:
        # Control characters in a name of a stranger's run would act on the terminal.
        super().__init__("".join(map(_printable, text)))


class Code(str):
    """Text that is safe to write into a generated file."""

    __slots__ = ()


def literal(value: Any) -> Code:
    """A plain value as a Python literal. Raises NotExportableError for any other, as below."""
    check_plain(value)
    text = repr(value)
    # Use double quotes, as formatters do, unless a text contains a quote itself.
    if '"' not in text:
        text = text.replace("'", '"')
    return Code(text)


def check_plain(value: Any) -> None:
    """Raises NotExportableError for a value that has no certain literal in Python, JSON and YAML.

    None, booleans, finite numbers, texts, and lists and mappings of these have one. Exact types are
    compared: a subclass of ``str`` may have any ``repr``.
    """
    if value is None or type(value) in (bool, int):
        return
    # ``nan`` and ``inf`` are names in Python, and JSON has neither.
    if type(value) is float and not math.isfinite(value):
        raise NotExportableError(f"{value} cannot be written as a literal")
    if type(value) is str:
        # Half of a surrogate pair has no UTF-8 encoding, so no file can hold it.
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise NotExportableError(f"{value!r} is not a text that a file can hold")
    elif type(value) in (list, tuple):
        for item in value:
            check_plain(item)
    elif type(value) is dict:
        for key, item in value.items():
            check_plain(key)
            check_plain(item)
    elif type(value) is not float:
        raise NotExportableError(f"a {type(value).__name__} cannot be written as a literal")


def known(text: str, names: Iterable[str], what: str) -> Code:
    """The text as code. Raises NotExportableError if it is none of ``names``: ``what`` they are."""
    for candidate in names:
        if text == candidate:
            # Return the object of the list. ``text`` could be of a subclass that compares equal.
            return Code(candidate)
    raise NotExportableError(f"{text!r} is not {what}")


def name(text: str) -> Code:
    """A Python name. Raises NotExportableError for any other text."""
    if not isinstance(text, str) or not text.isidentifier() or keyword.iskeyword(text):
        raise NotExportableError(f"{text!r} is not a name")
    return Code(text)


def dtype(text: str) -> Code:
    """``torch.bfloat16``. Raises NotExportableError for a name that is not in the fixed list."""
    return Code(f"torch.{known(text, _DTYPES, 'a dtype that a model is built with')}")


def keywords(values: Mapping[str, Any]) -> list[Code]:
    """``name=literal`` for each value. Raises NotExportableError as ``literal`` does."""
    return [keyword_argument(key, literal(value)) for key, value in values.items()]


def keyword_argument(key: str, value: Code) -> Code:
    """``key=value``. Raises NotExportableError if the key is not a name."""
    return Code(f"{name(key)}={value}")


def arguments(parts: Sequence[Code]) -> Code:
    """The arguments of a call. Raises NotExportableError if a keyword is given twice."""
    # A positional argument is its own name.
    names = [part.partition("=")[0] for part in parts]
    if len(set(names)) < len(names):
        raise NotExportableError(f"an argument is given twice: {', '.join(names)}")
    together = ", ".join(parts)
    if len(together) < 60:
        return Code(together)
    lines = "".join(f"\n        {part}," for part in parts)
    return Code(f"{lines}\n    ")


def one_line(text: str) -> Code:
    """Text for a docstring, a comment or Markdown: one line without markup."""
    printable = "".join(map(_printable, str(text)))
    words = " ".join(printable.split())
    return Code(words.translate(_WITHOUT_MARKUP))


def _printable(letter: str) -> str:
    """The letter, or a space for a line break, a control or a bidirectional character."""
    return letter if letter.isprintable() else " "
