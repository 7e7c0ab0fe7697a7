"""Reads the table of a trainer from its YAML file. The file has these keys:

name, marks, defaults, implied, plugins, command, any_script, takes_arguments, whole   the fields
               of ``Dialect``
also, reads    another file whose rows it has, or has without adding such keys to a user's file
rows           key -> the fact that it states as it is, or the fields of ``Rule``: ``values`` as a
               list are equal to ours, ``otherwise`` is the reason that refuses any other value,
               ``like`` names a row of training_arguments.yaml, and with ``axis`` the values are
               those to which an axis sets the key
left_aside     reason, or its name in ``REASONS`` -> keys that do not matter here
not_possible   reason -> keys that, unless they are off, ask for what no trial can do
"""

import fnmatch
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from jobs.techniques import AXES
from orchestrator.planning.choices.arguments import argument_names, ignored_reason, runner_reason

OFF = ("", "none", "null", "false", "no", "0", "0.0", "1", "[]", "{}")
"""Values that switch a feature off, or that mean one GPU, as ``spelt`` writes them."""
_SWITCHES = {"1": "true", "yes": "true", "0": "false", "no": "false"}
"""Other words of a command for a switch."""
COMMAND = "the command"
"""The key of a subcommand or script that says what is trained."""


class Verdict(StrEnum):
    """What became of a key of the user's file."""

    TAKEN = "taken"
    NEAREST = "nearest"
    DEFAULT = "default"
    OVERRULED = "overruled"
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
    """Their value -> the nearest of ours, and how it differs; of ``values``, too, if it is written
    back."""
    why: str = ""
    """Why a value is left out that the row does not list; or how ``fact`` differs from the key."""
    is_blocking: bool = False
    """Whether a value that the row does not list, and that is not off, refuses the file."""
    each: bool = False
    """Whether each item of a list is read, instead of the list."""
    is_file: bool = False
    """Whether it names a file with more keys, in a list once those are read."""

    def read(self, value: Any) -> Reading:
        """What the key says with this value."""
        if self.is_file:
            is_read = isinstance(value, list)
            verdict, why = (Verdict.TAKEN, "read, too") if is_read else (Verdict.UNKNOWN, NOT_HERE)
            return Reading(verdict=verdict, why=why)
        if self.each and isinstance(value, list):
            return _joined([self._read_one(item) for item in value])
        return self._read_one(value)

    def _read_one(self, value: Any) -> Reading:
        word = spelt(value)
        if value is None:
            return Reading(verdict=Verdict.ASIDE, why="has no value")
        known = {*self.values, *self.nearest}
        if "true" in known and word not in known:
            word = _SWITCHES.get(word, word)
        if word in self.nearest:
            ours, why = self.nearest[word]
            return Reading(verdict=Verdict.NEAREST, facts=self._facts(ours), why=why)
        if word in self.values:
            return Reading(verdict=Verdict.TAKEN, facts=self._facts(self.values[word]))
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


NOT_HERE = "it decides the training, and is not here: give it with --from, too"
"""Why a file that another one names is not taken."""


class _Unknown(Rule):
    """A key without a row."""

    def read(self, value: Any) -> Reading:
        if value is None:
            return Reading(verdict=Verdict.ASIDE, why="has no value")
        return Reading(verdict=Verdict.UNKNOWN, why="its meaning is not known here")


UNKNOWN = _Unknown()


REASONS: Mapping[str, str] = {
    "ONE_GPU": "one GPU trains here; resources.gpus_per_trial and the axis sharding share the "
    "states among several",
    "SEVERAL_GPUS": "it splits layers or sequences among GPUs; the axis sharding shares states",
    "LOGS": "changes neither memory nor speed",
    "TOKENS": "the rows are random, so no tokenizer reads them",
    "DATA": "the rows are those of the data set if it is a file here, and else random ones of the "
    "sequence length",
    "AS_PAIRS": "classification of two rows for each pair, which the micro-batch counts",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """How one trainer writes a training down."""

    name: str
    rows: Mapping[str, Rule]
    """Key -> what it says; ``a.b`` is b inside the mapping a, ``*`` is any rest."""
    order: tuple[str, ...] = ()
    """Its keys: of two that state the same fact differently, the later one here counts."""
    marks: tuple[str, ...] = ()
    """Keys that only files of this dialect have."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Facts of a file that does not state them."""
    refuses_repeated_keys: bool = False
    """Whether its trainer refuses a file with a repeated key, of which others take the last."""
    implied: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """First word of facts that a file states -> the facts that follow if it does not state them."""
    takes_arguments: bool = False
    """Whether any field of TrainingArguments is a key, too."""
    command: str = ""
    """A regular expression of the words before a command's options; empty: it is a file."""
    reads: tuple[str, ...] = ()
    """Keys that not every file of this dialect may have."""
    any_script: bool = False
    """Whether a command with its marks is in this dialect, whatever it calls."""
    plugins: Mapping[str, str] = field(default_factory=dict)
    """Beginning of a key -> the plugin without which the key has no effect."""
    whole: str = ""
    """The fact that the whole file is, instead of single keys."""

    def rule(self, key: str) -> Rule:
        """The row of a key."""
        if key in self.rows:
            return self.rows[key]
        for pattern, rule in self.rows.items():
            if "*" in pattern and fnmatch.fnmatchcase(key, pattern):
                return rule
        if self.takes_arguments and key in (argument_names() or ()):
            if ignored_reason(key, None):
                return Rule(why=runner_reason(key) or REASONS["LOGS"])
            return Rule(fact=f"arguments.{key}")
        return UNKNOWN


def dialect(name: str) -> Dialect:
    table = dict(_table(name))
    rows = own = _rows(table)
    other = table.get("also") or table.pop("reads", "")
    others = _rows(_table(other)) if other else {}
    if table.get("takes_arguments"):
        # Its own rows go before those of all TrainingArguments.
        rows = {**own, **others, **_rows(_table("training_arguments")), **own}
    order = (*(key for key in rows if key not in own), *own)
    table |= {"rows": rows, "order": order, "marks": tuple(table.pop("marks", "").split())}
    table["reads"] = () if "also" in table else tuple(others)
    return Dialect(**{key: value for key, value in table.items() if key in Dialect.__slots__})


@functools.cache
def _table(name: str) -> Mapping[str, Any]:
    text = Path(__file__).with_name(f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def _rows(table: Mapping[str, Any]) -> dict[str, Rule]:
    rows = {key: _row(key, row) for key, row in table.get("rows", {}).items()}
    for section in ("not_possible", "left_aside"):
        for why, keys in table.get(section, {}).items():
            rule = Rule(why=REASONS.get(why, why), is_blocking=section == "not_possible")
            rows |= dict.fromkeys(keys.split(), rule)
    return rows


def _row(key: str, row: Any) -> Rule:
    if isinstance(row, str):
        return Rule(fact=row)
    if like := row.get("like"):
        arguments = _table("training_arguments")
        return _row(like, {**arguments["rows"], **arguments["shared"]}[like])
    values = row.get("values", {})
    if isinstance(values, list):
        values = {word: word for word in values}
    if "axis" in row:
        values = {**_values_of(row["axis"], key), **values}
    why = row.get("otherwise", row.get("why", ""))
    near = row.get("nearest", {}).items()
    return Rule(
        fact=row.get("fact", ""),
        values={spelt(word): ours for word, ours in values.items()},
        nearest={
            word: (ours, REASONS.get(reason, reason))
            for words, (ours, reason) in near
            for word in _range(spelt(words))
        },
        why=REASONS.get(why, why),
        is_blocking="otherwise" in row,
        each=row.get("each", False),
        is_file=row.get("is_file", False),
    )


def _range(words: str) -> list[str]:
    """``5..7`` as 5, 6 and 7; any other word alone."""
    first, dots, last = words.partition("..")
    return [str(number) for number in range(int(first), int(last) + 1)] if dots else [first]


def _values_of(axis: str, argument: str) -> dict[str, str]:
    """Value of a training argument -> the first value of the axis that sets it."""
    named: dict[str, str] = {}
    for value, variant in AXES[axis].variants.items():
        if name := variant.training_arguments.get(argument):
            named.setdefault(str(name), value)
    return named
