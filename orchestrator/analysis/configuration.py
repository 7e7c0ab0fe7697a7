"""A configuration as measured: the rows that repeat each other, combined."""

import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from jobs.flags import LOSS, Flag, FlagKind, flags_of, has_any
from jobs.record import Outcome
from jobs.spec import Choice, TrainingRecipe
from jobs.techniques import BATCH_AXES
from orchestrator.analysis.grouping import grouped
from orchestrator.analysis.loss_parity.equivalence import SameLosses
from orchestrator.analysis.loss_parity.loss_checks import NOT_CHECKED, LossCheck
from orchestrator.analysis.loss_parity.windows import CheckState
from orchestrator.analysis.repeatability import UNKNOWN_ERROR, SpeedError, speed_error
from orchestrator.storage.tables.rows import Row, is_of_the_search, recipe_of

MEMORY_COLUMNS = ("device_peak_bytes", "peak_allocated_bytes", "host_peak_resident_bytes")
"""Columns that memory can be compared by, best first: of the device, its tensors, the process."""
_LOSS_MISMATCH = LOSS - {FlagKind.ACCUMULATION_SUSPECT}
MISMATCH = _LOSS_MISMATCH | {FlagKind.GRADIENTS_DIFFER}
"""Flags of a row that trained something else than its reference."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Configuration:
    """Median speed and largest memory of the repeats of one configuration, in one environment."""

    choices: Mapping[str, Choice]
    """Axis -> value."""
    environment_id: str
    training_recipe: TrainingRecipe
    """What it is ranked with: what its techniques declare, or with ``same_losses`` another one."""
    memory_bytes: int
    samples_per_second: float
    row: Row = field(repr=False)
    """The first repeat's whole row."""
    trial_ids: tuple[str, ...] = ()
    speed_error: SpeedError = UNKNOWN_ERROR
    """How well its mean speed is known."""
    flags: tuple[Flag, ...] = ()
    """The flags of all repeats."""
    loss_check: LossCheck = NOT_CHECKED
    """What the losses say: the weakest check of the repeats."""
    same_losses: SameLosses | None = None
    """The losses that justify ranking it with another recipe than its techniques declare."""

    @property
    def micro_batch(self) -> int:
        """Samples of one pass."""
        return int(self.row["micro_batch"])

    @property
    def accumulation(self) -> int:
        """Passes per optimizer step; 0 if the table does not have it."""
        return self.row["accumulation"] or 0

    @property
    def gpus(self) -> int:
        """GPUs that train together."""
        return int(self.row.get("world_size") or 1)

    @property
    def effective_batch(self) -> int:
        """Samples per optimizer step, of all GPUs together."""
        return int(self.row["effective_batch"])

    @property
    def real_tokens_per_second(self) -> float | None:
        """Tokens without padding that it trains on in a second; None where unknown."""
        tokens = self.row.get("real_tokens_per_second")
        samples = self.row.get("samples_per_second")
        if not tokens or not samples:
            return None
        # The speed is the median of all repeats, which have the same tokens per sample.
        return float(tokens / samples * self.samples_per_second)

    @property
    def techniques(self) -> tuple[Hashable, ...]:
        """A key that is equal for configurations that differ in their batch alone."""
        chosen = (each for each in self.choices.items() if each[0] not in BATCH_AXES)
        return (self.environment_id, self.training_recipe, *chosen)

    @property
    def gradient_bytes(self) -> int | None:
        """Bytes of the gradients that accumulation keeps between passes; None if unknown. One per
        trained parameter, in its data type; DeepSpeed accumulates in 32 bits."""
        count = self.row.get("parameters_trainable")
        named = str(self.row.get("parameter_dtypes") or "")
        bytes_of = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
        sizes = [size for dtype, size in bytes_of.items() if dtype in named]
        if count is None or not sizes:
            return None
        # With several data types, the count of each is not known. The widest is an upper bound.
        return int(count) * (max(sizes) if self.row.get("zero_stage") is None else 4)

    @property
    def error95(self) -> float | None:
        """Half the 95 % interval of another trial's speed, as a share of it; None if not known."""
        half_width = self.speed_error.of_another_trial(len(self.trial_ids)).half_width95
        return half_width if math.isfinite(half_width) else None

    @property
    def is_host_bound(self) -> bool:
        """Whether the host, not the GPU, limits the speed."""
        return has_any(self.flags, frozenset({FlagKind.HOST_BOUND, FlagKind.DATA_BOUND}))

    @property
    def loss_flags(self) -> tuple[Flag, ...]:
        """The flags about its losses; empty if they match their reference, or were not compared."""
        return tuple(flag for flag in self.flags if flag.kind in LOSS)

    @property
    def trains_wrongly(self) -> bool:
        """Whether its losses or gradients contradict their reference, so that it is never
        picked."""
        return has_any(self.flags, MISMATCH)

    @property
    def loss_state(self) -> CheckState:
        """The result of its loss check. In a table without losses, the flags decide."""
        is_wrong = has_any(self.flags, _LOSS_MISMATCH)
        return CheckState.MISMATCH if is_wrong else self.loss_check.state

    @property
    def trains_like(self) -> tuple[TrainingRecipe, int]:
        """Equal for configurations that train the same way."""
        return self.training_recipe, self.effective_batch


def configurations(
    rows: Iterable[Row], axes: Mapping[str, str], checks: Mapping[str, LossCheck] | None = None
) -> tuple[Configuration, ...]:
    """The configurations of the search's ok rows, with repeats combined, by environment. ``axes``
    maps an axis to its column, and ``checks`` a trial to its loss check."""
    ok = [row for row in rows if row["outcome"] == Outcome.OK and is_of_the_search(row)]
    combined: list[Configuration] = []
    for in_environment in grouped(ok, itemgetter("environment_id")).values():
        # All configurations of an environment are compared by one measure of memory.
        column = memory_column(in_environment)
        repeats = grouped(
            (row for row in in_environment if row.get(column) and _has_speed(row)),
            lambda row: (
                row["training_recipe"],
                row["effective_batch"],
                *map(row.get, axes.values()),
            ),
        )
        combined += [_combined(each, axes, column, checks or {}) for each in repeats.values()]
    return tuple(combined)


def _has_speed(row: Row) -> bool:
    return 0 < (row.get("samples_per_second") or 0) < math.inf


def choices_of(row: Row, axes: Mapping[str, str]) -> dict[str, Choice]:
    """Axis -> a row's value on it; ``axes`` maps an axis to its column."""
    return {axis: row.get(column) for axis, column in axes.items()}


def choice_order(value: Choice) -> tuple[bool, bool, Any]:
    """Sort key of an axis's values: None first, then numbers by size, then names."""
    return isinstance(value, str), value is not None, value or 0


def memory_column(rows: Sequence[Row]) -> str:
    """The first of ``MEMORY_COLUMNS`` that every ok row of an environment has."""
    # A trial that failed may lack a column that every ok trial has.
    ok = [row for row in rows if row["outcome"] == Outcome.OK]
    known = (each for each in MEMORY_COLUMNS if all(row.get(each) is not None for row in ok))
    return next(known, "peak_allocated_bytes")


def whole_memory(row: Row, column: str) -> float:
    """The memory by ``column`` with what else a training takes: an evaluation, a whole epoch. The
    whole GPU's peak is assumed to grow as much as the memory that the allocator reserves."""
    memory = float(row[column])
    actions = ("evaluate", "save", "load_best", "resume", "merge")
    if column == "host_peak_resident_bytes":
        return max(memory, *(row.get(f"peak_{action}_host_bytes") or 0.0 for action in actions))
    kind = "reserved" if column == "device_peak_bytes" else "allocated"
    training = row.get(f"peak_{kind}_bytes")
    growths = [row.get("epoch_growth_bytes") or 0.0 if column == "device_peak_bytes" else 0.0]
    for action in actions:
        peak = row.get(f"peak_{action}_{kind}_bytes")
        if peak is not None and training is not None:
            # An action that needs more than the training raises the peak by the difference.
            growths.append(peak - training)
    return memory + max(growths)


def gpu_memory(row: Row) -> float:
    """The whole memory of a trial's GPU, by NVML's peak if it is known; 0 without any."""
    for column in ("device_peak_bytes", "peak_allocated_bytes"):
        if row.get(column):
            return whole_memory(row, column)
    return 0.0


def _combined(
    repeats: Sequence[Row], axes: Mapping[str, str], column: str, checks: Mapping[str, LossCheck]
) -> Configuration:
    first = repeats[0]
    # One repeat that waited for the host does not move a median. Memory has to fit in every repeat.
    return Configuration(
        choices=choices_of(first, axes),
        environment_id=first["environment_id"],
        training_recipe=recipe_of(first),
        memory_bytes=int(max(whole_memory(row, column) for row in repeats)),
        samples_per_second=float(statistics.median(row["samples_per_second"] for row in repeats)),
        row=first,
        trial_ids=tuple(row["trial_id"] for row in repeats),
        speed_error=speed_error(repeats),
        flags=tuple(dict.fromkeys(flag for row in repeats for flag in flags_of(row))),
        loss_check=min(
            (checks.get(row["trial_id"], NOT_CHECKED) for row in repeats),
            key=lambda check: (list(CheckState).index(check.state), -(check.bound or 0.0)),
        ),
    )
