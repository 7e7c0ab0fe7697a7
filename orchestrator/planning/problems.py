"""What is wrong with a configuration file, said so that one look at the line mends it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

KeyPath = tuple[str | int, ...]
"""Where a value stands: keys and list positions from the top of the file."""

_MANY = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One mistake. ``line`` counts from 1; ``key`` is empty where the whole file is meant."""

    file: str
    line: int
    key: str = ""
    message: str

    def __str__(self) -> str:
        return ": ".join(
            part for part in (f"{self.file}:{self.line}", self.key, self.message) if part
        )


class ConfigError(Exception):
    """A configuration that cannot be used; ``problems`` holds every mistake, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(
            sorted(dict.fromkeys(problems), key=lambda problem: (problem.file, problem.line))
        )
        super().__init__(str(self))

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


def dotted(at: KeyPath) -> str:
    """``("trials", 2, "optimizer")`` as ``trials[2].optimizer``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in at).lstrip(".")


def closest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that ``word`` was probably meant to be."""
    by_lower = {choice.lower(): choice for choice in choices}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[found[0]] if found else None


def advice(word: object, choices: Sequence[str]) -> str:
    """``did you mean "sgd"?`` and, unless they are many and one was found, the valid choices."""
    meant = closest(str(word), choices)
    guess = f'did you mean "{meant}"?' if meant else ""
    if meant and len(choices) > _MANY:
        return guess
    return "; ".join(part for part in (guess, f"valid choices: {', '.join(choices)}") if part)


def described(value: object) -> str:
    """A value of the file as a reader of the file would call it."""
    match value:
        case None:
            return "nothing (null)"
        case bool():
            return f"the boolean {str(value).lower()}"
        case str():
            return f'the text "{value}"'
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case _:
            return str(value)
