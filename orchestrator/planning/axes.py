"""The keys of a file that are written in axes, checked against techniques and TrainingArguments."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.planning.arguments import argument_names, owned_arguments, runner_reason
from orchestrator.planning.document import Document
from orchestrator.planning.problems import KeyPath, Problem, advice, closest, described

MICRO_BATCH = "micro_batch"
ACCUMULATION = "accumulation"
EFFECTIVE_BATCH = "effective_batch"
"""Samples per optimizer step, held fixed: the plan solves for the accumulation."""

V = TypeVar("V")
Assignment = Mapping[str, Choice]
"""Axis -> value."""
Grid = Mapping[str, tuple[Choice, ...]]
"""Axis -> its values, in the order of the file."""


def overlay(base: Mapping[str, V], over: Mapping[str, V]) -> dict[str, V]:
    """``over`` laid over ``base``; accumulation and effective batch displace each other."""
    merged = dict(base)
    # Each decides the other, so the later of the two words counts.
    if ACCUMULATION in over:
        merged.pop(EFFECTIVE_BATCH, None)
    elif EFFECTIVE_BATCH in over:
        merged.pop(ACCUMULATION, None)
    return {**merged, **over}


def deciding_axis(argument: str, used: Collection[str]) -> str | None:
    """The axis among those ``used`` that sets a training argument; None if none does."""
    axis = owned_arguments().get(argument, argument)
    # An effective batch decides the accumulation.
    if axis == ACCUMULATION and EFFECTIVE_BATCH in used:
        return EFFECTIVE_BATCH
    if axis in used:
        return axis
    return None


class AxisReader:
    """Reads grids and assignments from a document, gathering ``problems`` and the axes ``used``."""

    def __init__(self, document: Document) -> None:
        self.problems: list[Problem] = []
        self.used: dict[str, None] = {}
        self._document = document

    def grid(self, *at: str | int) -> Grid:
        """The grid at a key path: axis -> values; empty if there is none.

        A single value is a list of one.
        """
        grid = {}
        for axis, raw in self._axes(at):
            grid[axis] = tuple(self._values(axis, raw, (*at, axis)))
        return grid

    def assignment(self, *at: str | int) -> Assignment:
        """The assignment at a key path: axis -> one value."""
        chosen: dict[str, Choice] = {}
        for axis, raw in self._axes(at):
            if isinstance(raw, list):
                self._complain((*at, axis), "must be one value here, not a list")
            elif self._is_valid(axis, raw, (*at, axis)):
                chosen[axis] = raw
        return chosen

    def _axes(self, at: KeyPath) -> Iterator[tuple[str, Any]]:
        section = _value_at(self._document.value, at)
        if not isinstance(section, dict):
            return  # the schema's check says what it should be
        # Report the contradiction, then go on: both names are valid alone.
        if EFFECTIVE_BATCH in section and ACCUMULATION in section:
            message = "contradicts accumulation, which it decides; remove one of them"
            self._complain((*at, EFFECTIVE_BATCH), message)
        # A name that is no axis has no values to check.
        for axis, values in section.items():
            problem = _name_problem(axis)
            if problem:
                self._complain((*at, axis), problem)
            else:
                self.used[axis] = None
                yield axis, values

    def _values(self, axis: str, raw: Any, at: KeyPath) -> Iterator[Choice]:
        # One value stands for a list of one.
        if not isinstance(raw, list):
            if self._is_valid(axis, raw, at):
                yield raw
            return
        if not raw:
            self._complain(at, "has no values; give at least one, or remove the axis")
        # By type, too: to Python the values 1, 1.0 and True are equal.
        earlier: set[tuple[type, Any]] = set()
        for index, value in enumerate(raw):
            if not self._is_valid(axis, value, (*at, index)):
                continue
            if (type(value), value) in earlier:
                self._complain((*at, index), f"{value} is listed twice")
            earlier.add((type(value), value))
            yield value

    def _is_valid(self, axis: str, value: Any, at: KeyPath) -> bool:
        problem = _value_problem(axis, value, self._document.written.get(at, ""))
        if problem:
            self._complain(at, problem)
        return problem is None

    def _complain(self, at: KeyPath, message: str) -> None:
        self.problems.append(self._document.problem(at, message))


@dataclass(frozen=True, kw_only=True, slots=True)
class Grids:
    """What the file asks for, axis by axis; see the keys of the same names."""

    axes: Grid
    subsets: Mapping[str, Grid]
    exclude: tuple[Grid, ...]
    trials: tuple[Assignment, ...]
    baseline: Assignment

    @property
    def size(self) -> int:
        """Configurations before any is excluded."""
        grids = [overlay(self.axes, subset) for subset in self.subsets.values()]
        if not grids:
            grids = [dict(self.axes)]
        size = len(self.trials)
        for grid in grids:
            # A grid is the product of its axes.
            size += math.prod(map(len, grid.values()))
        return size


def read_grids(content: Mapping[str, Any], reader: AxisReader) -> Grids:
    """Everything in axes of a document's content; the reader gathers what is wrong in it."""
    # A key of another type than it should have counts as empty here; the schema reports it.
    subsets = {}
    if isinstance(content.get("subsets"), dict):
        for name in content["subsets"]:
            subsets[name] = reader.grid("subsets", name, "axes")
    exclude = []
    for index in _positions(content.get("exclude")):
        exclude.append(reader.grid("exclude", index))
    trials = []
    for index in _positions(content.get("trials")):
        trials.append(reader.assignment("trials", index))
    return Grids(
        axes=reader.grid("axes"),
        subsets=subsets,
        exclude=tuple(exclude),
        trials=tuple(trials),
        baseline=reader.assignment("baseline"),
    )


def _positions(value: object) -> range:
    """The positions of a list; none in anything else."""
    if not isinstance(value, list):
        return range(0)
    return range(len(value))


def _value_at(value: Any, at: KeyPath) -> Any:
    """The value at a key path; None if a key is missing."""
    for key in at:
        # Walk down: keys in mappings, positions in lists.
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int):
            value = value[key]
        else:
            return None
    return value


def _name_problem(name: str) -> str | None:
    """What is wrong with the name of an axis; None if nothing is."""
    axes = [*AXES, EFFECTIVE_BATCH]
    if name in axes:
        return None
    # Name the axis or the key that decides it, so that the reader knows what to write.
    owner = owned_arguments().get(name)
    if owner:
        return f'the technique axis "{owner}" sets this argument; use {owner} instead'
    reason = runner_reason(name)
    if reason:
        return f"the runner decides this argument; {reason}"
    arguments = argument_names()
    if arguments is None or name in arguments:
        return None
    # A technique axis is the likelier meaning; there are few of them, and many arguments.
    meant = closest(name, axes) or closest(name, arguments)
    guess = ""
    if meant:
        guess = f'did you mean "{meant}"? '
    choices = f"{', '.join(axes)}, or a field of TrainingArguments"
    return f"unknown axis; {guess}valid choices: {choices}"


def _value_problem(axis: str, value: Any, written: str) -> str | None:
    # Batches are integers, techniques have names, arguments are anything plain.
    if axis == EFFECTIVE_BATCH or (axis in AXES and AXES[axis].integer_argument):
        return _integer_problem(value)
    if axis in AXES:
        return _variant_problem(list(AXES[axis].variants), value, written)
    # "custom" and "default" are the plan's own words for a value that no axis set.
    if value is None or isinstance(value, (bool, int, float, str)):
        return None
    return f"must be a single value, not {described(value)}"


def _variant_problem(variants: list[str], value: Any, written: str) -> str | None:
    if value in variants:
        return None
    if isinstance(value, str):
        return f'"{value}" is not known; {advice(value, variants)}'
    # YAML 1.1 reads on, off, yes and no as booleans.
    if isinstance(value, bool):
        boolean = str(value).lower()
        choices = ", ".join(variants)
        return (
            f"YAML reads {written} as the boolean {boolean}, and this axis takes names; "
            f"valid choices: {choices}"
        )
    return f"must be a name, not {described(value)}; {advice(written, variants)}"


def _integer_problem(value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return None
    problem = f"must be an integer from 1, not {described(value)}"
    if isinstance(value, str) and re.fullmatch(r"\d+", value):
        problem += "; write it without quotes"
    return problem
