"""The keys of a file that are written in axes, checked against techniques and TrainingArguments."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
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
    if ACCUMULATION in over:
        merged.pop(EFFECTIVE_BATCH, None)
    elif EFFECTIVE_BATCH in over:
        merged.pop(ACCUMULATION, None)
    return {**merged, **over}


class AxisReader:
    """Reads grids and assignments from a document, gathering ``problems`` and the axes ``used``."""

    def __init__(self, document: Document) -> None:
        self.problems: list[Problem] = []
        self.used: dict[str, None] = {}
        self._document = document

    def grid(self, *at: str | int) -> Grid:
        """The grid at a key path: axis -> values; empty where there is none.

        A single value is a list of one.
        """
        return {axis: tuple(self._values(axis, raw, (*at, axis))) for axis, raw in self._axes(at)}

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
        if not isinstance(raw, list):
            if self._is_valid(axis, raw, at):
                yield raw
            return
        if not raw:
            self._complain(at, "has no values; give at least one, or remove the axis")
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
        sizes = [math.prod(map(len, grid.values())) for grid in grids]
        return sum(sizes) + len(self.trials)


def read_grids(content: Mapping[str, Any], reader: AxisReader) -> Grids:
    """Everything in axes of a document's content; the reader gathers what is wrong in it."""
    subsets = {}
    if isinstance(content.get("subsets"), dict):
        subsets = {name: reader.grid("subsets", name, "axes") for name in content["subsets"]}
    exclude = [reader.grid("exclude", index) for index in _positions(content.get("exclude"))]
    trials = [reader.assignment("trials", index) for index in _positions(content.get("trials"))]
    return Grids(
        axes=reader.grid("axes"),
        subsets=subsets,
        exclude=tuple(exclude),
        trials=tuple(trials),
        baseline=reader.assignment("baseline"),
    )


def _positions(value: object) -> range:
    return range(len(value)) if isinstance(value, list) else range(0)


def _value_at(value: Any, at: KeyPath) -> Any:
    """The value at a key path; None where a key is missing."""
    for key in at:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int):
            value = value[key]
        else:
            return None
    return value


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
    meant = closest(name, axes) or closest(name, arguments)
    guess = f'did you mean "{meant}"? ' if meant else ""
    choices = f"{', '.join(axes)}, or a field of TrainingArguments"
    return f"unknown axis; {guess}valid choices: {choices}"


def _value_problem(axis: str, value: Any, written: str) -> str | None:
    if axis == EFFECTIVE_BATCH or (axis in AXES and AXES[axis].integer_argument):
        return _integer_problem(value)
    if axis in AXES:
        return _variant_problem(list(AXES[axis].variants), value, written)
    # "custom" and "default" are the plan's own words for a value that no axis set.
    if value is None or isinstance(value, (bool, int, float, str)):
        return None
    return f"must be a single value, not {described(value)}"


def _variant_problem(variants: list[str], value: Any, written: str) -> str | None:
    if isinstance(value, str):
        return None if value in variants else f'"{value}" is not known; {advice(value, variants)}'
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
    is_quoted = isinstance(value, str) and re.fullmatch(r"\d+", value)
    hint = "; write it without quotes" if is_quoted else ""
    return f"must be an integer from 1, not {described(value)}{hint}"
