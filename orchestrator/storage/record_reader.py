"""Records read with suspicion: a file may be damaged, foreign, of another version, or hold what no
table can.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json

from jobs.record import SCHEMA_VERSION, ArrowType, TrialRecord, record_from_json
from orchestrator.storage.layout import record_files
from orchestrator.storage.migration import upgraded_record
from orchestrator.storage.tables.anatomy_rows import is_sound

_YEAR_2100 = 4102444800.0
"""As Unix time: no clock, however wrong, starts a trial later."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordsFound:
    """What lies among a run folder's records."""

    records: tuple[tuple[Path, TrialRecord], ...]
    """File and record, by file name."""
    unreadable: tuple[Path, ...]
    """Files that are no record of this version."""


def read_record(path: Path) -> TrialRecord | None:
    """The record in a file; None where there is none that a table can hold."""
    try:
        if not path.is_file():  # a pipe would block, a device never ends
            return None
        text = path.read_bytes()
        raw = from_json(text)
        version = raw.get("schema_version", 1)
        if version > SCHEMA_VERSION:
            return None
        if version < SCHEMA_VERSION:
            raw = {**upgraded_record(raw), "schema_version": SCHEMA_VERSION}
            text = json.dumps(raw).encode()
        _shape().validate_json(text, strict=True)  # every value of its type
        record = record_from_json(raw)  # no field that this version does not know
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None
    return record if _fits_a_table(record) else None


def find_records(run_folder: Path) -> RecordsFound:
    """Every record of a run folder, and the files that are none."""
    found: list[tuple[Path, TrialRecord]] = []
    unreadable = []
    for path in record_files(run_folder):
        record = read_record(path)
        if record is None:
            unreadable.append(path)
        else:
            found.append((path, record))
    return RecordsFound(records=tuple(_with_todays_ids(found)), unreadable=tuple(unreadable))


def read_records(run_folder: Path) -> list[TrialRecord]:
    """Every readable record, oldest first, those that never started last."""
    records = [record for _, record in find_records(run_folder).records]
    return sorted(records, key=lambda record: (record.started_at == 0, record.started_at))


def _with_todays_ids(found: Iterable[tuple[Path, TrialRecord]]) -> list[tuple[Path, TrialRecord]]:
    """Follow-ups of version 1 name trials by old identities, which are the names of their files."""
    listed = list(found)
    todays = {path.stem: record.trial_id for path, record in listed}
    return [(path, _following(record, todays)) for path, record in listed]


def _following(record: TrialRecord, todays: Mapping[str, str]) -> TrialRecord:
    follow_up = record.spec.follow_up
    if follow_up is None:
        return record
    renamed = dataclasses.replace(
        follow_up,
        follows_trial=todays.get(follow_up.follows_trial, follow_up.follows_trial),
        compared_with=tuple(todays.get(name, name) for name in follow_up.compared_with),
    )
    if renamed == follow_up:
        return record
    return dataclasses.replace(record, spec=dataclasses.replace(record.spec, follow_up=renamed))


@functools.cache
def _shape() -> TypeAdapter[TrialRecord]:
    return TypeAdapter(TrialRecord)


@functools.cache
def _declared_types() -> Mapping[str, ArrowType]:
    from orchestrator.storage.tables.columns import declared_columns  # loads all trackers

    return {column.name: column.type for column in declared_columns()}


def _fits_a_table(record: TrialRecord) -> bool:
    arguments = record.spec.settings.training_arguments
    names = ("per_device_train_batch_size", "gradient_accumulation_steps")
    batch = [arguments.get(name, 1) for name in names]
    choices = record.spec.choices.values()
    return (
        all(_is_integer(size) and 0 < size < 2**31 for size in batch)
        and all(not isinstance(choice, int) or _is_number(choice) for choice in choices)
        and _is_integer(record.spec.repeat)
        and abs(record.started_at) < _YEAR_2100
        and _is_number(record.slot_seconds)
        and math.isfinite(record.slot_seconds)
        and (record.anatomy is None or is_sound(record.anatomy))
        and all(_is_of_its_type(name, value) for name, value in record.measurements.items())
        and _has_known_flags(record)
    )


def _has_known_flags(record: TrialRecord) -> bool:
    try:
        return isinstance(record.flags, tuple)
    except ValueError:  # a kind that this version does not know, or lists of unequal length
        return False


def _is_of_its_type(name: str, value: Any) -> bool:
    declared = _declared_types().get(name)
    return value is None or declared is None or _IS_OF_TYPE[declared](value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64


def _is_number(value: Any) -> bool:
    """An integer that a double holds exactly, or a double; NaN counts."""
    if isinstance(value, float):
        return True
    return isinstance(value, int) and value.bit_length() <= 53


def _is_number_or_none(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    """An integer, or a double without a fraction."""
    if type(value) is float:
        return value.is_integer() and abs(value) < 2**53
    return _is_integer(value)


def _is_list_of(is_item: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(is_item, value))


_IS_OF_TYPE: Mapping[ArrowType, Callable[[Any], bool]] = {
    "int64": _is_whole,
    "float64": lambda value: _is_number(value) and not isinstance(value, bool),
    "string": _is_text,
    "bool": lambda value: isinstance(value, bool),
    "timestamp": _is_integer,
    "list<double>": _is_list_of(_is_number_or_none),
    "list<string>": _is_list_of(_is_text),
}
