"""Reads records and checks them: files may be damaged, foreign, or unfit for a table."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic_core
from pydantic import TypeAdapter

from jobs.flags import unknown_kinds
from jobs.record import SCHEMA_VERSION, ArrowType, TrialRecord
from jobs.spec import from_json
from orchestrator.storage.layout import read_regular, record_files
from orchestrator.storage.run_metadata import UnreadableRunError
from orchestrator.storage.tables.columns import is_integer, is_number, is_of_type, is_possible
from orchestrator.storage.tables.trial_table import is_sound
from orchestrator.units import count, listed

_DAMAGE = (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError)
"""What reading a damaged or foreign file raises."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordsFound:
    """The readable and the unreadable files among a run folder's records."""

    records: tuple[TrialRecord, ...]
    """Oldest first; those of trials that never started come last."""
    unreadable: tuple[Path, ...]
    """Files that are not records of this version."""
    newer: tuple[Path, ...] = ()
    """Those of them that a newer version of this program wrote."""

    def sentences(self) -> tuple[str, ...]:
        """How many files cannot be read, and which; nothing if all can."""
        damaged = [path for path in self.unreadable if path not in self.newer]
        kinds = {
            " (damaged, or no record of this program)": damaged,
            ": a newer version of this program wrote it": self.newer,
        }
        return tuple(
            f"{count(len(paths), 'record')} cannot be read{reason}: {listed(paths, 4)}"
            for reason, paths in kinds.items()
            if paths
        )


def read_record(path: Path) -> TrialRecord | None:
    """The record in a file; None if there is none that a table can hold."""
    try:
        text = read_regular(path)
        raw = pydantic_core.from_json(text)
        if raw["schema_version"] != SCHEMA_VERSION:
            return None
        _shape().validate_json(text, strict=True)  # every value of its type
        record = from_json(TrialRecord, raw)  # no field that this version does not know
    except _DAMAGE:
        return None
    # The file is named after its trial. That of a superseded record may have a number, too.
    is_of_its_file = path.stem.partition("-")[0] == record.trial_id
    return record if is_of_its_file and _fits_a_table(record) else None


def find_records(run_folder: Path) -> RecordsFound:
    """All records of a run folder. Raises UnreadableRunError if their folder cannot be listed."""
    try:
        read = {path: read_record(path) for path in record_files(run_folder)}
    except OSError as error:
        raise UnreadableRunError(f"{error.filename}: {error.strerror}") from None
    unreadable = tuple(path for path, record in read.items() if record is None)
    return RecordsFound(
        records=tuple(sorted(filter(None, read.values()), key=_order)),
        unreadable=unreadable,
        newer=tuple(filter(_is_newer, unreadable)),
    )


def _is_newer(path: Path) -> bool:
    try:
        return bool(pydantic_core.from_json(read_regular(path))["schema_version"] > SCHEMA_VERSION)
    except _DAMAGE:
        return False


def _order(record: TrialRecord) -> tuple[bool, float]:
    """By start; one of a trial that never started, whose start is 0, comes last."""
    return record.started_at == 0, record.started_at


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
    sizes = [arguments.get(name, 1) for name in names]
    # A column of integers and fractions is one of doubles.
    whole = [choice for choice in record.spec.choices.values() if isinstance(choice, int)]
    return (
        # The product of the sizes, the effective batch, must fit 64 bits.
        all(is_integer(size) and 0 < size < 2**31 for size in sizes)
        and is_integer(record.spec.repeat)
        and all(map(is_number, whole))
        and is_number(record.slot_seconds)
        and math.isfinite(record.slot_seconds)
        and abs(record.started_at) < 4102444800.0  # the year 2100: no clock is as wrong as that
        and (record.anatomy is None or is_sound(record.anatomy))
        and all(_is_of_its_type(name, value) for name, value in record.measurements.items())
        and _has_known_flags(record)
    )


def _has_known_flags(record: TrialRecord) -> bool:
    try:
        return isinstance(record.flags, tuple) and not unknown_kinds([record.measurements])
    except ValueError:  # lists of unequal length
        return False


def _is_of_its_type(name: str, value: Any) -> bool:
    # A tracker of another installation may measure what is not declared here.
    declared = _declared_types().get(name)
    return declared is None or (is_of_type(value, declared) and is_possible(name, value))
