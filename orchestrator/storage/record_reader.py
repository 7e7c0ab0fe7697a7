"""A record's file, doubted: torn, foreign, of another version, or holding figures that no table can."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json

from jobs.record import ArrowType, TrialRecord, record_from_json
from orchestrator.storage.tables.anatomy_rows import is_sound

_LATEST = 4102444800.0
"""The year 2100 as Unix time: a later start is no clock's, however it jumped."""


def read_record(path: Path) -> TrialRecord | None:
    """The record in a file; None where there is none that a table can hold."""
    try:
        if not path.is_file():  # a pipe would be waited for, a device never ends
            return None
        text = path.read_bytes()
        _shape().validate_json(text, strict=True)  # every value of its type
        record = record_from_json(from_json(text))  # no field that this version does not know
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None
    return record if _fits(record) else None


@functools.cache
def _shape() -> TypeAdapter[TrialRecord]:
    return TypeAdapter(TrialRecord)


@functools.cache
def _declared() -> Mapping[str, ArrowType]:
    from orchestrator.storage.tables.columns import (
        declared_columns,
    )  # all instruments: not for a dry run

    return {column.name: column.type for column in declared_columns()}


def _fits(record: TrialRecord) -> bool:
    arguments, measured, declared = (
        record.spec.recipe.training_arguments,
        record.measurements,
        _declared(),
    )
    sizes = [
        arguments.get(name, 1)
        for name in ("per_device_train_batch_size", "gradient_accumulation_steps")
    ]
    return (
        all(_is_integer(size) and 0 < size < 2**31 for size in sizes)
        and all(
            not isinstance(choice, int) or _is_number(choice)
            for choice in record.spec.choices.values()
        )
        and _is_integer(record.spec.repeat)
        and abs(record.started_at) < _LATEST
        and _is_number(record.wall_seconds)
        and math.isfinite(record.wall_seconds)
        and (record.anatomy is None or is_sound(record.anatomy))
        and all(v is None or n not in declared or _IS[declared[n]](v) for n, v in measured.items())
    )


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64


def _is_number(value: Any) -> bool:
    """An integer that a double holds exactly, or a double, not a number included."""
    return isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= 53)


def _is_list(is_item: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(is_item, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_IS: Mapping[ArrowType, Callable[[Any], bool]] = {
    "int64": lambda value: (
        _is_integer(value) or (type(value) is float and value.is_integer() and abs(value) < 2**53)
    ),
    "float64": lambda value: _is_number(value) and not isinstance(value, bool),
    "string": _is_text,
    "bool": lambda value: isinstance(value, bool),
    "timestamp": _is_integer,
    "list<double>": _is_list(_is_number),
    "list<string>": _is_list(_is_text),
}
