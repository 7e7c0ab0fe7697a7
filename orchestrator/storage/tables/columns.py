"""The columns of the published tables: identity and axes here, measurements as their instruments declare them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jobs.record import ArrowType, Column, TrialRecord
from jobs.spec import Choice
from jobs.techniques import AXES
from jobs.trackers import TRACKERS
from jobs.trial import columns as trial_columns
from jobs.trial import effective_config

BASE: tuple[Column, ...] = (
    Column(
        name="trial_id",
        type="string",
        doc="Digest of everything that can change the trial's result.",
    ),
    Column(
        name="outcome",
        type="string",
        doc="How the trial ended; only ok carries measurements to rank.",
    ),
    Column(
        name="reason", type="string", doc="Why it did not end ok, in one sentence; empty when ok."
    ),
    Column(name="rule", type="string", doc="The rule that ruled the trial out or skipped it."),
    Column(name="phase", type="string", doc="Where the trial was when it ended."),
    Column(name="repeat", type="int64", doc="Number of this repeat of the configuration, from 0."),
    Column(name="equivalence", type="string", doc="Trials with equal values train the same way."),
    Column(name="micro_batch", type="int64", unit="samples", doc="Samples per forward pass."),
    Column(
        name="accumulation", type="int64", unit="passes", doc="Forward passes per optimizer step."
    ),
    Column(name="effective_batch", type="int64", unit="samples", doc="Samples per optimizer step."),
    Column(name="gpu_model", type="string", doc="The accelerator's name; empty on a CPU."),
    Column(
        name="environment_id",
        type="string",
        doc="Digest of hardware and versions; see the file's metadata.",
    ),
    Column(
        name="started_at",
        type="timestamp",
        unit="UTC",
        doc="When the trial started; null if it never did.",
    ),
    Column(
        name="wall_seconds",
        type="float64",
        unit="s",
        doc="What the trial cost its slot: from fork to result.",
    ),
    Column(
        name="isolation",
        type="string",
        doc="fork: child of a preloaded parent; fresh: a new interpreter.",
    ),
    Column(
        name="log", type="string", doc="The trial's last lines of output when it did not end well."
    ),
)

FOLLOW_UP: tuple[Column, ...] = (
    Column(
        name="purpose",
        type="string",
        doc="search, or why a trial was looked at again: budget, comparison or anatomy.",
    ),
    Column(
        name="follows",
        type="string",
        doc="The trial that was looked at again; null for the search's own.",
    ),
    Column(
        name="memory_cap_bytes",
        type="int64",
        unit="B",
        doc="The device memory that the trial was kept to, context and libraries included.",
    ),
    Column(
        name="among",
        type="list<string>",
        doc="The trials that it was compared with in turns, its own included.",
    ),
    Column(name="turn", type="int64", doc="How often each of them had its turn before."),
)
"""Younger than the first tables, which are read without them."""

COMPARED: tuple[Column, ...] = (
    Column(
        name="compile_break_even_steps",
        type="float64",
        doc="Steps until compiling has paid for its first step, beside the eager trial otherwise equal; inf: never.",
    ),
)
"""What follows from several rows of a table."""

FRONTIER_COLUMNS: tuple[Column, ...] = (
    Column(
        name="frontier_memory_bytes",
        type="int64",
        unit="B",
        doc="The largest memory of its repeats.",
    ),
    Column(
        name="frontier_samples_per_second",
        type="float64",
        unit="1/s",
        doc="The median speed of its repeats.",
    ),
    Column(name="repeats", type="int64", doc="Trials combined into this row."),
    Column(
        name="training",
        type="string",
        doc="Kind of training: the equivalence without its effective batch.",
    ),
    Column(
        name="on_frontier",
        type="bool",
        doc="On the frontier of its kind of training, whatever the batch.",
    ),
    Column(name="across_trainings", type="bool", doc="On the frontier among all trainings, too."),
)

STEP_COLUMNS: tuple[Column, ...] = (
    Column(name="trial_id", type="string", doc="The trial, as in trials.parquet."),
    Column(name="step", type="int64", doc="Optimizer step, from 0, warm-up included."),
    Column(name="counted", type="bool", doc="Whether the step counts; false during warm-up."),
    Column(
        name="step_seconds",
        type="float64",
        unit="s",
        doc="Wall time from the end of one step to the next.",
    ),
    Column(
        name="device_seconds", type="float64", unit="s", doc="The device's own time for the step."
    ),
    Column(
        name="data_seconds",
        type="float64",
        unit="s",
        doc="Time spent waiting for the step's micro-batches.",
    ),
    Column(name="loss", type="float64", doc="Training loss of the step."),
)

ANATOMY_COLUMNS: tuple[Column, ...] = (
    Column(
        name="trial_id", type="string", doc="The trial that was taken apart, as in trials.parquet."
    ),
    Column(name="part", type="string", doc="What is taken apart; see below."),
    Column(name="name", type="string", doc="The share's name."),
    Column(name="value", type="float64", doc="Its figure; of a timeline the highest."),
    Column(
        name="unit", type="string", doc="The figure's unit: B, s, flop, flop/s, or none of a ratio."
    ),
    Column(name="kind", type="string", doc="What predictions count the memory under."),
    Column(name="expected", type="float64", doc="What a rule of thumb says, in the same unit."),
    Column(name="rule", type="string", doc="The rule, formula or source."),
    Column(name="held", type="bool", doc="Whether the rule held."),
    Column(
        name="timeline_seconds",
        type="list<double>",
        unit="s",
        doc="Of a timeline: moments since the step began.",
    ),
    Column(
        name="timeline_bytes", type="list<double>", unit="B", doc="Of a timeline: bytes held then."
    ),
)


def declared_columns() -> tuple[Column, ...]:
    """What the trackers, the inspection and the trial itself declare to measure."""
    return (
        *(column for tracker in TRACKERS for column in tracker.columns),
        *effective_config.COLUMNS,
        *trial_columns.COLUMNS,
    )


def axis_columns(records: Sequence[TrialRecord], taken: Iterable[str] = ()) -> dict[str, Column]:
    """Axis -> its column, for every axis chosen on. An axis whose name is ``taken`` becomes ``argument_<name>``."""
    values: dict[str, list[Choice]] = {}
    for record in records:
        for axis, value in record.spec.choices.items():
            values.setdefault(axis, []).append(value)
    base, reserved = (
        {column.name: column for column in BASE},
        {*taken, *(c.name for c in (*BASE, *FOLLOW_UP))},
    )
    columns: dict[str, Column] = {}
    for axis, chosen in values.items():
        if axis in ("micro_batch", "accumulation"):
            columns[axis] = base[axis]
        else:
            name = f"argument_{axis}" if axis in reserved else axis
            doc = AXES[axis].doc if axis in AXES else f"TrainingArguments.{axis}"
            columns[axis] = Column(name=name, type=_type_of(axis, chosen), doc=doc)
    return columns


def _type_of(axis: str, values: Iterable[Choice]) -> ArrowType:
    if axis in AXES:
        return "int64" if AXES[axis].integer_argument else "string"
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return "bool"
    if kinds == {int}:
        return "int64"
    return "float64" if kinds and kinds <= {int, float} else "string"


def columns(
    declared: Sequence[Column] | None = None, records: Sequence[TrialRecord] = ()
) -> tuple[Column, ...]:
    """The trials table's columns: identity, the axes that ``records`` chose on, then what was measured."""
    measured = declared_columns() if declared is None else tuple(declared)
    axes = axis_columns(records, (column.name for column in measured)).values()
    known = {column.name for column in BASE}
    return (
        *BASE,
        *FOLLOW_UP,
        *(column for column in axes if column.name not in known),
        *measured,
        *COMPARED,
    )
