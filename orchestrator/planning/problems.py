"""What is wrong with a configuration file: the line, the key, and how to fix it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from orchestrator.units import listed

KeyPath = tuple[str | int, ...]
"""Where a value is: keys and list positions from the top of the file."""
KeyProblem = tuple[KeyPath, str]
"""The path of a key, and what is wrong with its value."""
KeyProblems = Iterator[KeyProblem]


class Remark(NamedTuple):
    """A sentence about the value of a key."""

    at: KeyPath
    message: str
    is_note: bool = False
    """Whether it is only worth a note, and no mistake."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One mistake. ``line`` counts from 1, and is 0 for what is in no file; ``key`` is empty if the
    whole file is meant."""

    file: str
    line: int
    key: str = ""
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        parts = (place, self.key, self.message)
        return ": ".join(part for part in parts if part)


class ConfigError(Exception):
    """A configuration that cannot be used; ``problems`` has every mistake, in the file's order."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        # Two checks can report the same mistake.
        distinct = dict.fromkeys(problems)
        self.problems = tuple(sorted(distinct, key=attrgetter("file", "line")))
        super().__init__(str(self))

    def __str__(self) -> str:
        # A file with more mistakes is probably of another program.
        lines = [str(problem) for problem in self.problems[:50]]
        left_out = len(self.problems) - len(lines)
        if left_out:
            lines.append(f"… and {left_out:,} more mistakes")
        return "\n".join(lines)


def dotted(at: KeyPath) -> str:
    """``("trials", 2, "optimizer")`` as ``trials[2].optimizer``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in at)
    return "".join(parts).lstrip(".")


def closest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that ``word`` was probably meant to be; None if none is similar."""
    import difflib  # only a mistake needs it

    by_lower = {choice.lower(): choice for choice in choices}
    written = word.lower()

    def similarity(choice: str) -> tuple[float, bool, int]:
        """Share of letters in common; ties go to equal letters, then to a longer common start."""
        ratio = difflib.SequenceMatcher(a=choice, b=written).ratio()
        return ratio, sorted(choice) == sorted(written), shared_length(choice, written)

    # A word that ends one choice is that choice without its family's name: alpha is lora_alpha.
    ended = [choice for choice in by_lower if choice.endswith(f"_{written}")]
    if len(ended) == 1 and len(written) > 2:
        return by_lower[ended[0]]
    # difflib's own threshold, 0.6 of the letters in common, finds transposed and missing letters.
    # A shortened name is meant before a name with the same letters: adamw, and not grokadamw.
    for beginning in (f"{written}_", written):
        begun = [choice for choice in by_lower if choice.startswith(beginning)]
        if begun and len(beginning) > 2:
            return by_lower[begun[0]]
    matches = difflib.get_close_matches(written, by_lower, n=len(by_lower) or 1)
    return by_lower[max(matches, key=similarity)] if matches else None


def shared_length(first: Sequence[object], second: Sequence[object]) -> int:
    """How many letters or other items are equal at the beginning of two sequences."""
    pairs = enumerate(zip(first, second, strict=False))
    unequal = (at for at, (one, other) in pairs if one != other)
    return next(unequal, min(len(first), len(second)))


def advice(word: object, choices: Sequence[str]) -> str:
    """``did you mean "sgd"?`` and the valid choices; of many choices only the guess."""
    names = listed(choices, 50)
    guess = closest(str(word), choices)
    if guess is None:
        return f"valid choices: {names}"
    question = did_you_mean(guess)
    return question if len(choices) > 16 else f"{question} Valid choices: {names}"


def guess_after(word: str, choices: Iterable[str]) -> str:
    """``; did you mean "sgd"?`` to end a sentence with; empty if no choice is similar."""
    guess = closest(word, choices)
    return "" if guess is None else f"; {did_you_mean(guess)}"


def did_you_mean(guess: str) -> str:
    """The question whether a misspelled word is this one."""
    return f'did you mean "{guess}"?'


def named_value(value: object) -> str:
    """A value that is not known: text in quotes, anything else as ``described``."""
    return f'"{value}"' if isinstance(value, str) else described(value)


def described(value: object) -> str:
    """A value in words that a reader of the file knows."""
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
