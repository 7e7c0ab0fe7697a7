"""The columns of the published tables, those of all trackers too, and what values they take."""

import datetime
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import yaml

from jobs.record import ArrowType, Column, TrialRecord
from jobs.spec import Choice
from jobs.techniques import AXES, BATCH_AXES
from jobs.trackers import TRACKERS
from jobs.trial import effective_config, trial_columns

_LISTED = yaml.safe_load(files(__package__).joinpath("columns.yaml").read_text())


def _listed(part: str) -> tuple[Column, ...]:
    return tuple(Column(name, *about) for name, about in _LISTED[part].items())


BASE = _listed("base")
PROVENANCE = _listed("provenance")
FOLLOW_UP = _listed("follow_up")
COMPARED = _listed("compared")
(PRESENT_TRIAL_ID,) = _listed("earlier")
FRONTIER_COLUMNS = _listed("frontier")
STEP_COLUMNS = _listed("steps")
ANATOMY_COLUMNS = _listed("anatomy")


def declared_columns() -> tuple[Column, ...]:
    """The columns that the trackers, the effective configuration and the trial itself measure."""
    tracked = (column for tracker in TRACKERS for column in tracker.columns)
    return (*tracked, *effective_config.COLUMNS, *trial_columns.COLUMNS)


def trial_table_columns(
    records: Sequence[TrialRecord] = (), declared: Sequence[Column] | None = None
) -> tuple[Column, ...]:
    """The columns of the trials' table: identity, the axes that ``records`` chose on, measured."""
    measured = declared_columns() if declared is None else declared
    # Micro-batch and accumulation are axes, too, and already among the columns of every table.
    axes = [axis for axis in axis_columns(records, measured).values() if axis not in BASE]
    return (*BASE, *FOLLOW_UP, *axes, *measured, *PROVENANCE, *COMPARED)


def axis_columns(
    records: Sequence[TrialRecord], declared: Iterable[Column] = ()
) -> dict[str, Column]:
    """Axis of the records -> its column, ``argument_<name>`` if another has its name."""
    base = {column.name: column for column in BASE}
    taken = {column.name for column in (*BASE, *FOLLOW_UP, *PROVENANCE, *declared)}
    values: dict[str, list[Choice]] = {}
    for record in records:
        for axis, value in record.spec.choices.items():
            values.setdefault(axis, []).append(value)
    columns: dict[str, Column] = {}
    for axis, choices in values.items():
        name = f"argument_{axis}" if axis in taken else axis
        doc = AXES[axis].doc if axis in AXES else f"TrainingArguments.{axis}"
        is_batch = axis in BATCH_AXES
        columns[axis] = base[axis] if is_batch else Column(name, _type_of(axis, choices), doc)
    return columns


def _type_of(axis: str, values: Iterable[Choice]) -> ArrowType:
    if axis in AXES and AXES[axis].integer_argument:
        return "int64"
    if axis in AXES and not AXES[axis].takes_integers:
        return "string"
    # An argument of TrainingArguments has the narrowest type that holds all its values.
    # A value that no trial chose is null in any type.
    types = {type(value) for value in values if value is not None}
    # bool first: to Python it is a kind of int.
    if types == {bool}:
        return "bool"
    if types == {int}:
        return "int64"
    return "float64" if types and types <= {int, float} else "string"


_LIMITS: Mapping[str, tuple[float, float]] = {
    "samples_per_second": (1e-9, 1e12),
    "samples_per_second_ci95": (0.0, 1e6),
    "peak_allocated_bytes": (0.0, 2.0**60),
    "device_peak_bytes": (0.0, 2.0**60),
}
"""Measurement -> the smallest and the largest figure that arithmetic with it can take."""


def is_possible(name: str, value: Any) -> bool:
    """Whether a measurement can be computed with; zero, None, NaN and infinity can."""
    if name not in _LIMITS or not value or not math.isfinite(value):
        return True
    least, most = _LIMITS[name]
    return bool(least <= value <= most)


def is_of_type(value: Any, declared: ArrowType) -> bool:
    """Whether a column of the type holds the value; None has a place in every column."""
    return value is None or _IS_OF_TYPE[declared](value)


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64


def is_number(value: Any) -> bool:
    """An integer that a double holds exactly, or a double; NaN counts."""
    if isinstance(value, float):
        return True
    # A double's significand has 53 bits (IEEE 754).
    return isinstance(value, int) and value.bit_length() <= 53


def _is_whole(value: Any) -> bool:
    # Trackers written in C deliver whole numbers as doubles.
    if type(value) is float:
        return value.is_integer() and abs(value) < 2**53
    return is_integer(value)


def _is_list(value: Any, of: ArrowType) -> bool:
    return isinstance(value, list) and all(is_of_type(item, of) for item in value)


_IS_OF_TYPE: Mapping[ArrowType, Callable[[Any], bool]] = {
    "int64": _is_whole,
    # To Python a boolean is an integer.
    "float64": lambda value: is_number(value) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    # Microseconds of a record, or the time that Arrow makes of them.
    "timestamp": lambda value: isinstance(value, datetime.datetime) or is_integer(value),
    "list<double>": lambda value: _is_list(value, "float64"),
    "list<string>": lambda value: _is_list(value, "string") and None not in value,
}
"""A column's declared type -> whether a value is of it."""
