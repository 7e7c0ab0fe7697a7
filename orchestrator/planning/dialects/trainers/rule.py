"""What a dialect's table says of one key: which fact it states, or why it is left out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

OFF = ("", "none", "null", "false", "no", "0", "0.0", "1", "[]", "{}")
"""Values that switch a feature off, or that mean one GPU, as ``spelt`` writes them."""


class Verdict(StrEnum):
    """What became of a key of the user's file."""

    TAKEN = "taken"
    NEAREST = "nearest"
    DEFAULT = "default"
    ASIDE = "left aside"
    UNKNOWN = "unknown"
    IMPOSSIBLE = "not possible"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What one key of the user's file says."""

    verdict: Verdict
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The facts that it states; ``facts.py`` lists them."""
    why: str = ""
    """Why it is not taken, or how the nearest value differs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One row of a dialect's table."""

    fact: str = ""
    """The fact that the key states. Empty: ``values`` are mappings of facts, or nothing is taken.
    """
    values: Mapping[str, Any] = field(default_factory=dict)
    """Their value, as ``spelt`` writes it -> ours. Empty: the value is taken as it is."""
    nearest: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    """Their value -> the nearest of ours, and how it differs."""
    why: str = ""
    """Why a value is left out that the row does not list; or how ``fact`` differs from the key."""
    is_blocking: bool = False
    """Whether a value that the row does not list, and that is not off, refuses the file."""
    each: bool = False
    """Whether each item of a list is read, instead of the list."""

    def read(self, value: Any) -> Reading:
        """What the key says with this value."""
        if self.each and isinstance(value, list):
            return _joined([self._read_one(item) for item in value])
        return self._read_one(value)

    def _read_one(self, value: Any) -> Reading:
        word = spelt(value)
        if value is None:
            return Reading(verdict=Verdict.ASIDE, why="has no value")
        if word in self.values:
            return Reading(verdict=Verdict.TAKEN, facts=self._facts(self.values[word]))
        if word in self.nearest:
            ours, why = self.nearest[word]
            return Reading(verdict=Verdict.NEAREST, facts=self._facts(ours), why=why)
        if self.fact and not self.values:
            verdict = Verdict.NEAREST if self.why else Verdict.TAKEN
            return Reading(verdict=verdict, facts={self.fact: value}, why=self.why)
        if word in OFF and (self.is_blocking or not self.why):
            return Reading(verdict=Verdict.ASIDE, why="off")
        why = self.why or f"no counterpart of {word}"
        if self.is_blocking:
            return Reading(verdict=Verdict.IMPOSSIBLE, why=why)
        return Reading(verdict=Verdict.ASIDE if self.why else Verdict.UNKNOWN, why=why)

    def _facts(self, ours: Any) -> Mapping[str, Any]:
        if self.fact:
            return {self.fact: ours}
        return ours if isinstance(ours, Mapping) else {}


def spelt(value: Any) -> str:
    """A value as a table writes it: ``True`` and ``"true"`` are equal in files and commands."""
    return str(value).strip().lower()


def _joined(readings: list[Reading]) -> Reading:
    """One reading of a list: the worst verdict, and all facts."""
    order = list(Verdict)
    worst = max(readings, key=lambda one: order.index(one.verdict), default=None)
    if worst is None:
        return Reading(verdict=Verdict.ASIDE, why="has no value")
    facts = {name: value for one in readings for name, value in one.facts.items()}
    return Reading(verdict=worst.verdict, facts=facts, why=worst.why)
