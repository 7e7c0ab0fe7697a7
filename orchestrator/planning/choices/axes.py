"""Reads and checks the keys of a config file that hold axes and their values."""

import functools
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jobs.spec import Choice
from jobs.techniques import AXES, Axis
from jobs.techniques.axes.activations import RENAMED
from orchestrator.planning.choices.arguments import argument_names, runner_reason, value_problem
from orchestrator.planning.choices.technique_parameters import read_family
from orchestrator.planning.document import Document
from orchestrator.planning.problems import (
    KeyPath,
    Problem,
    Remark,
    advice,
    closest,
    described,
    did_you_mean,
)

MICRO_BATCH = "micro_batch"
ACCUMULATION = "accumulation"
SEQUENCE_LENGTH = "sequence_length"
EFFECTIVE_BATCH = "effective_batch"
"""The axis of fixed samples per optimizer step; the plan computes the accumulation from it."""

V = TypeVar("V")
Choices = Mapping[str, Choice]
"""Axis -> its value."""
Grid = Mapping[str, tuple[Choice, ...]]
"""Axis -> its values, in the order of the file."""


def overlay(base: Mapping[str, V], over: Mapping[str, V]) -> dict[str, V]:
    """``base`` with the items of ``over``; accumulation and effective batch replace each other."""
    merged = dict(base)
    # Accumulation and effective batch determine each other, so only the newer one may stay.
    if ACCUMULATION in over:
        merged.pop(EFFECTIVE_BATCH, None)
    elif EFFECTIVE_BATCH in over:
        merged.pop(ACCUMULATION, None)
    return {**merged, **over}


@dataclass(frozen=True, kw_only=True, slots=True)
class Grids:
    """The configurations that a file asks for. Each field holds the key of the same name."""

    axes: Grid = field(default_factory=dict)
    subsets: Mapping[str, Grid] = field(default_factory=dict)
    """Named grids laid over ``axes``; when there are any, the plan is their union."""
    exclude: tuple[Grid, ...] = ()
    trials: tuple[Choices, ...] = ()
    baseline: Choices = field(default_factory=dict)
    """A trial that names no value takes this one, and the report compares with it."""

    @property
    def grids(self) -> list[Grid]:
        """The grids whose union is planned: each subset laid over the axes, else the axes alone. A
        file without axes has one trial, because an empty grid has one configuration; but a list of
        single trials stands alone."""
        if not self.subsets:
            return [self.axes] if self.axes or not self.trials else []
        return [overlay(self.axes, subset) for subset in self.subsets.values()]

    @property
    def size(self) -> int:
        """The number of configurations before any is excluded."""
        return len(self.trials) + sum(math.prod(map(len, grid.values())) for grid in self.grids)


@functools.cache
def owned_arguments() -> dict[str, str]:
    """Training argument -> the technique axis that sets it."""
    owners: dict[str, str] = {}
    for axis in AXES.values():
        names = {axis.integer_argument or ""}
        names = names.union(*(row.training_arguments for row in axis.variants.values())) - {""}
        # The user may write an argument by its name in a newer transformers.
        names |= {RENAMED[name] for name in names & RENAMED.keys()}
        # Sorted, because a set has no order and errors list the names.
        owners |= dict.fromkeys(sorted(names), axis.name)
    return owners


def deciding_axis(argument: str, used: Collection[str]) -> str | None:
    """The axis among those ``used`` that sets a training argument; None if none does."""
    axis = owned_arguments().get(argument, argument)
    # An effective batch decides the accumulation.
    if axis == ACCUMULATION and EFFECTIVE_BATCH in used:
        return EFFECTIVE_BATCH
    return axis if axis in used else None


def read_grids(document: Document) -> tuple[Grids, Collection[str], list[Problem]]:
    """All grids and choices of a file, the axes that occur in them, and what is wrong with them. A
    key of a wrong type counts as empty here. The check against the schema reports it."""
    reader, content = _AxisReader(document), document.value
    subsets = content.get("subsets")
    grids = Grids(
        subsets={
            name: reader.grid(subset.get("axes"), "subsets", name, "axes")
            for name, subset in (subsets if isinstance(subsets, dict) else {}).items()
            if isinstance(subset, dict)
        },
        exclude=tuple(reader.grid(entry, "exclude", at) for at, entry in _list(content, "exclude")),
        trials=tuple(reader.choices(entry, "trials", at) for at, entry in _list(content, "trials")),
        axes=reader.grid(content.get("axes"), "axes"),
        baseline=reader.choices(content.get("baseline"), "baseline"),
    )
    return grids, reader.used, reader.problems


def _list(content: Mapping[str, Any], key: str) -> Iterator[tuple[int, Any]]:
    found = content.get(key)
    return enumerate(found if isinstance(found, list) else [])


class _AxisReader:
    """Reads grids and choices; collects their ``problems``, and in ``used`` the axes that occur."""

    def __init__(self, document: Document) -> None:
        self.problems: list[Problem] = []
        self.used: dict[str, None] = {}
        self._document = document

    def grid(self, section: Any, *at: str | int) -> Grid:
        named = self._axes(section, at)
        return {axis: tuple(self._values(axis, raw, (*at, axis))) for axis, raw in named}

    def choices(self, section: Any, *at: str | int) -> Choices:
        chosen: dict[str, Choice] = {}
        for axis, raw in self._axes(section, at):
            if isinstance(raw, list):
                self._complain((*at, axis), "must be one value here, not a list")
            else:
                chosen.update((axis, value) for value in self._read(axis, raw, (*at, axis)))
        return chosen

    def _axes(self, section: Any, at: KeyPath) -> Iterator[tuple[str, Any]]:
        if not isinstance(section, dict):
            return
        # Report the contradiction and still read both axes: each is valid alone.
        if EFFECTIVE_BATCH in section and ACCUMULATION in section:
            message = "contradicts accumulation, which it decides; remove one of them"
            self._complain((*at, EFFECTIVE_BATCH), message)
        for axis, values in section.items():
            problem = _name_problem(axis)
            if problem:
                self._complain((*at, axis), problem)
            else:
                self.used[axis] = None
                yield axis, values

    def _values(self, axis: str, raw: Any, at: KeyPath) -> Iterator[Choice]:
        # A single value counts as a list of one value.
        if not isinstance(raw, list):
            yield from self._read(axis, raw, at)
            return
        if not raw:
            self._complain(at, "has no values; give at least one, or remove the axis")
        # Compare the types, too, because 1, 1.0 and True are equal in Python.
        earlier: set[tuple[type, Any]] = set()
        for index, item in enumerate(raw):
            for value in self._read(axis, item, (*at, index)):
                if (type(value), value) in earlier:
                    self._complain((*at, index), f"{value} is listed twice")
                earlier.add((type(value), value))
                yield value

    def _read(self, axis: str, raw: Any, at: KeyPath) -> list[Choice]:
        """The value as the plan has it; none if it is not valid."""
        if _takes_names(axis, raw):
            source = self._document.written.get(at, "")
            technique, mistakes = read_technique(AXES[axis], raw, source)
            for mistake in mistakes:
                self._complain((*at, *mistake.at), mistake.message)
            return [] if mistakes else [technique]
        problem = _value_problem(axis, raw)
        if problem:
            self._complain(at, problem)
            return []
        return [raw]

    def _complain(self, at: KeyPath, message: str) -> None:
        self.problems.append(self._document.problem(at, message))


def _name_problem(name: str) -> str | None:
    axes = [*AXES, EFFECTIVE_BATCH]
    if name in axes:
        return None
    owner = owned_arguments().get(name)
    if owner:
        return f'the technique axis "{owner}" sets this argument; use {owner} instead'
    reason = runner_reason(name)
    if reason:
        return f"the runner decides this argument; {reason}"
    arguments = argument_names()
    if arguments is None or name in arguments:
        return None
    # Prefer a technique axis as the guess: users mean one of the few axes more often than one of
    # the many arguments.
    meant = closest(name, axes) or closest(name, arguments)
    choices = f"{', '.join(axes)}, or a field of TrainingArguments"
    if meant is None:
        return f"unknown axis; valid choices: {choices}"
    return f"unknown axis; {did_you_mean(meant)} Valid choices: {choices}"


def _takes_names(axis: str, value: Any) -> bool:
    """Whether the value of an axis should be the name of a technique."""
    if axis not in AXES or AXES[axis].integer_argument:
        return False
    return isinstance(value, str) or not AXES[axis].takes_integers


def read_technique(axis: Axis, value: Any, source: str = "") -> tuple[str, list[Remark]]:
    """The value of a technique axis in its written form, and what is wrong with it. ``source`` is
    the value as the file has it."""
    if isinstance(value, str) and (value in axis.variants or axis.fits_pattern(value)):
        return value, []
    if isinstance(value, dict) and axis.families:
        return read_family(axis, value)
    if isinstance(value, str) and axis.families and ("(" in value or value in axis.families):
        return read_family(axis, value)
    return "", [Remark((), _unknown_name(axis, value, source))]


def _unknown_name(axis: Axis, value: Any, source: str) -> str:
    if isinstance(value, str):
        return _unknown_text(axis, value)
    # YAML 1.1 reads on, off, yes and no as booleans.
    if isinstance(value, bool):
        return (
            f"YAML reads {source} as {described(value)}, and this axis takes names; valid choices: "
            f"{', '.join(axis.names)}"
        )
    return f"must be a name, not {described(value)}; {advice(source, axis.names)}"


_OTHER_WORDS = {("adapter", "qlora"): "QLoRA is adapter: lora_r8_all_linear with base: bnb_4bit"}
"""Axis and a word that people have for choices of several axes -> these choices."""


def _unknown_text(axis: Axis, text: str) -> str:
    if axis.takes_integers:
        names = " or ".join(axis.variants)
        hint = "; write it without quotes" if text.isdecimal() else ""
        return f'must be an integer from 1 or {names}, not the text "{text}"{hint}'
    if axis.pattern is not None and text.startswith(axis.pattern.form.partition("<")[0]):
        # The first clause of its description says which numbers there are.
        numbers = axis.pattern.doc.partition(";")[0].replace("`", "")
        return f'"{text}" is not known; write {axis.pattern.form}: {numbers}'
    meant = _OTHER_WORDS.get((axis.name, text.lower())) or advice(text, axis.names)
    problem = f'"{text}" is not known; {meant}'
    families = [name for name in axis.families if text.startswith(name)]
    if not families:
        return problem
    # A question ends a sentence, so the next clause then begins a new one.
    joint = " With" if problem.endswith("?") else "; with"
    return f"{problem}{joint} parameters of your own: {max(families, key=len)}(name=value)"


def _value_problem(axis: str, value: Any) -> str | None:
    # Batches are integers, and arguments are any plain value.
    if axis == EFFECTIVE_BATCH or axis in AXES:
        return integer_problem(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value_problem(axis, value) or None
    return f"must be a single value, not {described(value)}"


def integer_problem(value: Any) -> str | None:
    """What is wrong with a value that must be a positive integer; None if nothing is."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return None
    problem = f"must be an integer from 1, not {described(value)}"
    if isinstance(value, str) and re.fullmatch(r"\d+", value):
        problem += "; write it without quotes"
    return problem
