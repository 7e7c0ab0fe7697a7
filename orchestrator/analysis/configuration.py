"""A configuration as measured: the rows that repeat each other, combined."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jobs.flags import LOSS, Flag, FlagKind, flags_of, has_any
from jobs.record import Outcome
from jobs.spec import Choice, TrainingRecipe
from orchestrator.analysis.loss_parity import CheckState, LossCheck, SameLosses
from orchestrator.analysis.loss_parity.checks import NOT_CHECKED
from orchestrator.analysis.repeatability import UNKNOWN_ERROR, SpeedError, speed_error
from orchestrator.storage.tables.rows import Row, is_of_the_search, recipe_of

MEMORY_COLUMNS = ("device_peak_bytes", "peak_allocated_bytes", "host_peak_resident_bytes")
"""Columns by which memory can be compared, best first.

They are the peaks of the whole device, of the tensors on it, and of the process on the host.
"""
MISMATCH = LOSS - {FlagKind.ACCUMULATION_SUSPECT}
"""Flags of a row that trained something else than its reference.

``ACCUMULATION_SUSPECT`` is left out, because it says something about other rows.
"""
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
"""Data type of a parameter -> bytes of one parameter."""
_WEAKEST_FIRST = (
    CheckState.MISMATCH,
    CheckState.NOT_CHECKED,
    CheckState.MATCHES,
    CheckState.REFERENCE,
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Configuration:
    """Median speed and largest memory of the repeats of one configuration, in one environment."""

    choices: Mapping[str, Choice]
    """Axis -> value."""
    environment_id: str
    training_recipe: TrainingRecipe
    """The recipe that the configuration is ranked with.

    It is the recipe that its techniques declare. If ``same_losses`` is set, it is another recipe,
    whose losses were shown to be the same.
    """
    memory_bytes: int
    samples_per_second: float
    row: Row = field(repr=False)
    """The first repeat's whole row, with every column of docs/schema.md that its run has."""
    trial_ids: tuple[str, ...] = ()
    speed_error: SpeedError = UNKNOWN_ERROR
    """How far the speed of another trial of this configuration may be from this one."""
    flags: tuple[Flag, ...] = ()
    """The flags of all repeats."""
    loss_check: LossCheck = NOT_CHECKED
    """What the losses say: the weakest check of the repeats."""
    same_losses: SameLosses | None = None
    """The losses that justify ranking it with another recipe than its techniques declare."""

    @property
    def effective_batch(self) -> int:
        """Samples per optimizer step."""
        return int(self.row["effective_batch"])

    @property
    def error95(self) -> float | None:
        """Half the 95 % interval of the speed, as a share of the speed; None if not known.

        The variation between trials is included.
        """
        half_width = self.speed_error.half_width95
        if not math.isfinite(half_width):
            return None
        return half_width

    @property
    def is_host_bound(self) -> bool:
        """Whether the host, not the GPU, limits the speed."""
        return has_any(self.flags, frozenset({FlagKind.HOST_BOUND}))

    @property
    def is_wrong_by_scale_alone(self) -> bool:
        """Whether the losses are wrong only because they were not divided by the accumulation."""
        kinds = {flag.kind for flag in self.loss_flags}
        return kinds == {FlagKind.LOSS_TIMES_ACCUMULATION}

    @property
    def loss_flags(self) -> tuple[Flag, ...]:
        """The flags about its losses.

        Empty if the losses match their reference, or were not compared.
        """
        return tuple(flag for flag in self.flags if flag.kind in LOSS)

    @property
    def trains_wrongly(self) -> bool:
        """Whether its losses contradict their reference. It is then never picked or exported."""
        return has_any(self.flags, MISMATCH)

    @property
    def loss_state(self) -> CheckState:
        """The result of its loss check. In a table without losses, the flags decide."""
        if self.trains_wrongly:
            return CheckState.MISMATCH
        return self.loss_check.state

    @property
    def trains_like(self) -> tuple[TrainingRecipe, int]:
        """Recipe and effective batch. Configurations train the same way if this is equal."""
        return self.training_recipe, self.effective_batch


def configurations(
    rows: Iterable[Row],
    axes: Mapping[str, str],
    checks: Mapping[str, LossCheck] | None = None,
) -> tuple[Configuration, ...]:
    """The configurations of the search's ok rows, with repeats combined.

    They are grouped by environment, in the order of the rows. ``axes`` maps an axis to its column,
    and ``checks`` a trial to its loss check. Rows without a memory or a speed above zero are left
    out.
    """
    combined: list[Configuration] = []
    for in_environment in _ok_by_environment(rows):
        # All configurations of an environment are compared by one measure of memory.
        column = memory_column(in_environment)
        measured = [row for row in in_environment if _is_measured(row, column)]
        for repeats in _repeats(measured, axes):
            combined.append(_combined(repeats, axes, column, checks or {}))
    return tuple(combined)


def _ok_by_environment(rows: Iterable[Row]) -> Iterable[list[Row]]:
    """The search's ok rows of each environment."""
    by_environment: dict[str, list[Row]] = {}
    for row in rows:
        if row["outcome"] == Outcome.OK and is_of_the_search(row):
            by_environment.setdefault(row["environment_id"], []).append(row)
    return by_environment.values()


def memory_column(rows: Sequence[Row]) -> str:
    """The first of ``MEMORY_COLUMNS`` that every ok row of an environment has."""
    # A trial that failed may lack a column that every ok trial has.
    ok = [row for row in rows if row["outcome"] == Outcome.OK]
    for column in MEMORY_COLUMNS:
        if all(row.get(column) is not None for row in ok):
            return column
    return "peak_allocated_bytes"


def whole_memory(row: Row, column: str) -> float:
    """The memory of a training with its evaluations and checkpoints, if those were measured.

    ``column`` is the column that memory is compared by. The peak of the whole GPU is assumed to
    grow as much as the memory that the allocator reserves.
    """
    memory = float(row[column])
    if column == "host_peak_resident_bytes":
        return memory
    kind = "reserved" if column == "device_peak_bytes" else "allocated"
    training = row.get(f"peak_{kind}_bytes")
    for action in ("evaluate", "save"):
        peak = row.get(f"peak_{action}_{kind}_bytes")
        if peak is not None and training is not None:
            # An action that needs more than the training raises the peak by the difference.
            memory = max(memory, float(row[column]) + peak - training)
    return memory


def gradient_bytes(configuration: Configuration) -> int | None:
    """Bytes of the gradients that accumulation keeps between passes; None if unknown.

    There is one gradient per trained parameter, in the parameter's data type. DeepSpeed accumulates
    in 32 bits, whatever the data type of the weights.
    """
    row = configuration.row
    count = row.get("parameters_trainable")
    named = str(row.get("parameter_dtypes") or "")
    sizes = [size for dtype, size in _BYTES.items() if dtype in named]
    if count is None or not sizes:
        return None
    # With several data types, the count of each is not known. The widest gives an upper bound.
    bytes_each = max(sizes)
    if row.get("zero_stage") is not None:
        bytes_each = _BYTES["float32"]
    return int(count) * bytes_each


def _is_measured(row: Row, column: str) -> bool:
    memory = row.get(column)
    speed = row.get("samples_per_second")
    if not memory or not speed:
        return False
    return memory > 0 and speed > 0 and math.isfinite(speed)


def _repeats(rows: Iterable[Row], axes: Mapping[str, str]) -> Iterable[list[Row]]:
    """The rows in groups of equal choices."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        chosen = tuple(row.get(column) for column in axes.values())
        key = (row["training_recipe"], row["effective_batch"], *chosen)
        groups.setdefault(key, []).append(row)
    return groups.values()


def _combined(
    repeats: Sequence[Row],
    axes: Mapping[str, str],
    column: str,
    checks: Mapping[str, LossCheck],
) -> Configuration:
    """The configuration of these repeats: their median speed, and the worst of all else."""
    first = repeats[0]
    # A median speed is robust against one repeat that waited for the host; memory has to fit in
    # every repeat, so the largest counts.
    return Configuration(
        choices={axis: first[name] for axis, name in axes.items()},
        environment_id=first["environment_id"],
        training_recipe=recipe_of(first),
        memory_bytes=int(max(whole_memory(row, column) for row in repeats)),
        samples_per_second=float(statistics.median(row["samples_per_second"] for row in repeats)),
        row=first,
        trial_ids=tuple(row["trial_id"] for row in repeats),
        speed_error=speed_error(repeats),
        flags=_flags(repeats),
        loss_check=_weakest(checks.get(row["trial_id"], NOT_CHECKED) for row in repeats),
    )


def _flags(repeats: Iterable[Row]) -> tuple[Flag, ...]:
    """The flags of any repeat, each once."""
    flags: dict[Flag, None] = {}
    for row in repeats:
        flags.update(dict.fromkeys(flags_of(row)))
    return tuple(flags)


def _weakest(checks: Iterable[LossCheck]) -> LossCheck:
    return min(checks, key=_strength)


def _strength(check: LossCheck) -> int:
    return _WEAKEST_FIRST.index(check.state)
