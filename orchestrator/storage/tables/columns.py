"""The columns of the published tables. Measurements have those that their trackers declare."""

from collections.abc import Iterable, Sequence
from importlib.resources import files

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
