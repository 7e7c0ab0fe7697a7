"""Axis names and values, checked against the techniques and the installed TrainingArguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from jobs.spec import Choice
from jobs.techniques import AXES, Axis
from orchestrator.planning.arguments import argument_names, owned_arguments, runner_reason
from orchestrator.planning.document import Document
from orchestrator.planning.problems import KeyPath, Problem, advice, closest, described

EFFECTIVE_BATCH = "effective_batch"
"""Samples per optimizer step, held while the micro-batch varies: the plan solves for the accumulation."""
ACCUMULATION = "accumulation"

V = TypeVar("V")
Assignment = Mapping[str, Choice]
"""Axis -> value."""
Grid = Mapping[str, tuple[Choice, ...]]
"""Axis -> its values, in the order of the file."""


def lay(under: Mapping[str, V], over: Mapping[str, V]) -> dict[str, V]:
    """``over`` laid over ``under``; accumulation and effective batch displace one another."""
    displaced = (
        EFFECTIVE_BATCH
        if ACCUMULATION in over
        else ACCUMULATION
        if EFFECTIVE_BATCH in over
        else None
    )
    return {**{axis: value for axis, value in under.items() if axis != displaced}, **over}


class AxisReader:
    """Reads grids and assignments from a document, gathering ``problems`` and the axes ``used``."""

    def __init__(self, document: Document) -> None:
        self.problems: list[Problem] = []
        self.used: dict[str, None] = {}
        self._document = document

    def grid(self, *at: str | int) -> Grid:
        """The grid at a key path: axis -> values, a lone value being a list of one. Empty where there is none."""
        return {axis: tuple(self._values(axis, raw, (*at, axis))) for axis, raw in self._axes(at)}

    def assignment(self, *at: str | int) -> Assignment:
        """The assignment at a key path: axis -> one value."""
        chosen: dict[str, Choice] = {}
        for axis, raw in self._axes(at):
            if isinstance(raw, list):
                self._complain((*at, axis), "must be one value here, not a list")
            elif self._is_good(axis, raw, (*at, axis)):
                chosen[axis] = raw
        return chosen

    def _axes(self, at: KeyPath) -> Iterator[tuple[str, Any]]:
        raw: Any = self._document.value
        for part in at:
            raw = (
                raw.get(part)
                if isinstance(raw, dict)
                else raw[part]
                if isinstance(part, int)
                else None
            )
        if not isinstance(raw, dict):
            return  # the shape's check says what it should have been
        if EFFECTIVE_BATCH in raw and ACCUMULATION in raw:
            self._complain(
                (*at, EFFECTIVE_BATCH),
                "contradicts accumulation, which it decides; remove one of them",
            )
        for axis, values in raw.items():
            if wrong := _name_problem(axis):
                self._complain((*at, axis), wrong)
            else:
                self.used[axis] = None
                yield axis, values

    def _values(self, axis: str, raw: Any, at: KeyPath) -> Iterator[Choice]:
        if raw == []:
            self._complain(at, "has no values; give at least one, or remove the axis")
        met: set[tuple[type, Any]] = set()
        for index, value in enumerate(raw if isinstance(raw, list) else [raw]):
            here = (*at, index) if isinstance(raw, list) else at
            if not self._is_good(axis, value, here):
                continue
            if (type(value), value) in met:
                self._complain(here, f"{value} is listed twice")
            met.add((type(value), value))
            yield value

    def _is_good(self, axis: str, value: Any, at: KeyPath) -> bool:
        written = self._document.written.get(at, "")
        wrong = (
            _value_problem(AXES.get(axis), value, written)
            if axis in AXES
            else _number_or_argument(axis, value)
        )
        if wrong:
            self._complain(at, wrong)
        return wrong is None

    def _complain(self, at: KeyPath, message: str) -> None:
        self.problems.append(self._document.problem(at, message))


def _name_problem(name: str) -> str | None:
    techniques = [*AXES, EFFECTIVE_BATCH]
    if name in techniques:
        return None
    if owner := owned_arguments().get(name):
        return f'the technique axis "{owner}" sets this argument; use {owner} instead'
    if reason := runner_reason(name):
        return f"the runner decides this argument; {reason}"
    arguments = argument_names()
    if arguments is None or name in arguments:
        return None
    meant = closest(name, techniques) or closest(name, [*arguments])
    guess = f'did you mean "{meant}"? ' if meant else ""
    return f"unknown axis; {guess}valid choices: {', '.join(techniques)}, or a field of TrainingArguments"


def _value_problem(axis: Axis | None, value: Any, written: str) -> str | None:
    if axis is None or axis.integer_argument:
        return _integer_problem(value)
    choices = list(axis.variants)
    if isinstance(value, str):
        return (
            None if value in axis.variants else f'"{value}" is not known; {advice(value, choices)}'
        )
    if isinstance(value, bool):
        return (
            f"YAML reads {written} as the boolean {str(value).lower()}, and this axis takes names; "
            f"valid choices: {', '.join(choices)}"
        )
    return f"must be a name, not {described(value)}; {advice(written, choices)}"


def _number_or_argument(axis: str, value: Any) -> str | None:
    if axis == EFFECTIVE_BATCH:
        return _integer_problem(value)
    # "custom" and "default" are the plan's own words for a value that no axis set.
    if value is None or isinstance(value, (bool, int, float, str)):
        return None
    return f"must be a single value, not {described(value)}"


def _integer_problem(value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return None
    hint = (
        "; write it without quotes"
        if isinstance(value, str) and re.fullmatch(r"\d+", value)
        else ""
    )
    return f"must be an integer from 1, not {described(value)}{hint}"
