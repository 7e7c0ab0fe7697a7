"""The columns of the published tables. Measurements have those that their trackers declare."""

from collections.abc import Iterable, Sequence

from jobs.record import ArrowType, Column, TrialRecord
from jobs.spec import Choice
from jobs.techniques import AXES, BATCH_AXES
from jobs.trackers import TRACKERS
from jobs.trial import effective_config, trial_columns

BASE: tuple[Column, ...] = (
    Column("trial_id", "string", "Digest of what is trained and measured"),
    Column("outcome", "string", "How the trial ended; only ok carries measurements to rank"),
    Column("reason", "string", "Why it did not end ok, in one sentence; empty when ok"),
    Column("rule", "string", "The rule that ruled the trial out or skipped it"),
    Column("phase", "string", "Where the trial was when it ended"),
    Column("repeat", "int64", "Number of this repeat of the configuration, from 0"),
    Column.text(
        "training_recipe",
        "The choices that change what the training learns, as a JSON object of axis and value; "
        "rows with equal recipe and effective batch train the same way",
    ),
    Column("micro_batch", "int64", "Samples per forward pass", unit="samples"),
    Column("accumulation", "int64", "Forward passes per optimizer step", unit="passes"),
    Column("effective_batch", "int64", "Samples per optimizer step", unit="samples"),
    Column("gpu_model", "string", "The GPU's name; empty on a CPU"),
    Column("environment_id", "string", "Digest of hardware and versions; see the file's metadata"),
    Column("started_at", "timestamp", "When the trial started; null if it never did", unit="UTC"),
)

PROVENANCE: tuple[Column, ...] = (
    Column.seconds(
        "slot_seconds",
        "Slot time of the trial, from the start of its process to its result; both attempts of a "
        "trial that was repeated",
    ),
    Column.seconds("overhead_seconds", "Slot time beyond the counted steps"),
    Column.text(
        "isolation",
        "How the process was made: fork of a preloaded parent, or fresh (a new interpreter)",
    ),
    Column("isolation_fallback", "string", "Why the process could not be forked"),
    Column("node", "string", "The machine that ran the trial"),
    Column("cpus", "int64", "CPU cores given to the trial, also its OMP threads"),
    Column("host_memory_bytes", "int64", "Host memory reserved for the trial", unit="B"),
    Column("log", "string", "The trial's last lines of output if it did not end well"),
    Column("log_file", "string", "File in the run folder with the last 16 kB of its output"),
)
"""How a trial was run."""

FOLLOW_UP: tuple[Column, ...] = (
    Column("purpose", "string", "Why the trial was measured: search, or a follow-up (see below)"),
    Column("follows_trial", "string", "The trial that was measured again; null in the search"),
    Column.nbytes(
        "memory_cap_bytes",
        "GPU memory that the trial was capped to, context and libraries included",
    ),
    Column("compared_with", "list<string>", "Trials that a tie-break compares, its own included"),
    Column("round", "int64", "Rounds of the tie-break before this one"),
)

COMPARED: tuple[Column, ...] = (
    Column.number(
        "compile_break_even_steps",
        "Steps after which compiling has paid for its first step, compared with the eager trial "
        "that is otherwise equal; inf: never; null where the node's compile cache had a part of "
        "the code",
    ),
)
"""The columns that are computed from several rows of a table."""

PRESENT_TRIAL_ID = Column.text(
    "present_trial_id",
    "The trial's id by the present definition, in a table whose trial_id is of an earlier one",
)

FRONTIER_COLUMNS: tuple[Column, ...] = (
    Column("frontier_memory_bytes", "int64", "The largest memory of its repeats", unit="B"),
    Column("frontier_samples_per_second", "float64", "The median speed of its repeats", unit="1/s"),
    Column("repeats", "int64", "Trials combined into this row"),
    Column("on_frontier", "bool", "On the Pareto front of its training recipe, at any batch"),
    Column(
        "across_recipes",
        "bool",
        "On the Pareto front of all training recipes whose samples are equally long",
    ),
)

STEP_COLUMNS: tuple[Column, ...] = (
    Column("trial_id", "string", "The trial, as in trials.parquet"),
    Column("step", "int64", "Optimizer step, from 0, warm-up included"),
    Column("counted", "bool", "Whether the step counts; false during warm-up"),
    Column("step_seconds", "float64", "Wall time from the end of one step to the next", unit="s"),
    Column("device_seconds", "float64", "The device's own time for the step", unit="s"),
    Column("data_seconds", "float64", "Wait for the step's micro-batches", unit="s"),
    Column("loss", "float64", "Training loss of the step"),
)

ANATOMY_COLUMNS: tuple[Column, ...] = (
    Column("trial_id", "string", "The trial that was profiled, as in trials.parquet"),
    Column("part", "string", "What is broken down; see below"),
    Column("name", "string", "The share's name"),
    Column("value", "float64", "Its figure; the highest of a timeline"),
    Column("unit", "string", "The figure's unit: B, s, flop, flop/s, or none for a ratio"),
    Column("kind", "string", "The class of memory that predictions count it under"),
    Column("expected", "float64", "What a rule of thumb says, in the same unit"),
    Column("rule", "string", "The rule, formula or source"),
    Column("held", "bool", "Whether the rule held"),
    Column("timeline_seconds", "list<double>", "Times since the step began", unit="s"),
    Column("timeline_bytes", "list<double>", "Bytes held at those times", unit="B"),
)


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
