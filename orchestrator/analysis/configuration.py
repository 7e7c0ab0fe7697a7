"""A configuration as measured: the rows that repeat each other, combined."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jobs.flags import LOSS, Flag, FlagKind, flags_of, has_any
from jobs.record import Outcome
from jobs.spec import Choice, TrainingRecipe
from orchestrator.analysis.repeatability import UNKNOWN_ERROR, SpeedError, speed_error
from orchestrator.storage.tables.rows import Row, is_of_the_search, recipe_of

MEMORY_COLUMNS = ("device_peak_bytes", "peak_allocated_bytes", "host_peak_resident_bytes")
"""What memory can be compared by, best first: the device's peak, the tensors' peak, the process's
peak.
"""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Configuration:
    """Median speed and largest memory of the repeats of one configuration, in one environment."""

    choices: Mapping[str, Choice]
    """Axis -> value."""
    environment_id: str
    training_recipe: TrainingRecipe
    memory_bytes: int
    samples_per_second: float
    row: Row = field(repr=False)
    """The first repeat's whole row."""
    trial_ids: tuple[str, ...] = ()
    speed_error: SpeedError = UNKNOWN_ERROR
    """How far the speed of another trial of this configuration may be from this one."""
    flags: tuple[Flag, ...] = ()
    """Those of any repeat."""

    @property
    def effective_batch(self) -> int:
        """Samples per optimizer step."""
        return int(self.row["effective_batch"])

    @property
    def error95(self) -> float | None:
        """Half the 95 % interval of the speed relative to it, between-trial variation included.

        None where the speed is not known that well.
        """
        half_width = self.speed_error.half_width95
        return half_width if math.isfinite(half_width) else None

    @property
    def is_host_bound(self) -> bool:
        """Whether the host's speed was measured rather than the GPU's."""
        return has_any(self.flags, frozenset({FlagKind.HOST_BOUND}))

    @property
    def loss_flags(self) -> tuple[Flag, ...]:
        """What speaks against its losses; empty where they match their reference, or were not
        compared.
        """
        return tuple(flag for flag in self.flags if flag.kind in LOSS)

    @property
    def trains_like(self) -> tuple[TrainingRecipe, int]:
        """Configurations with equal values train the same way: recipe and effective batch."""
        return self.training_recipe, self.effective_batch


def configurations(rows: Iterable[Row], axes: Mapping[str, str]) -> tuple[Configuration, ...]:
    """The ok rows of the search, repeats combined; environment by environment, in order of first
    appearance.

    ``axes`` maps an axis to its column. Rows without a memory or a speed above zero are left out.
    """
    by_environment: dict[str, list[Row]] = {}
    for row in rows:
        if row["outcome"] == Outcome.OK and is_of_the_search(row):
            by_environment.setdefault(row["environment_id"], []).append(row)
    found: list[Configuration] = []
    for own in by_environment.values():
        column = memory_column(own)
        measured = [row for row in own if _is_measured(row, column)]
        for repeats in _repeats(measured, axes):
            found.append(_combined(repeats, axes, column))
    return tuple(found)


def memory_column(rows: Sequence[Row]) -> str:
    """The first of ``MEMORY_COLUMNS`` that every ok row of an environment has."""
    ok = [row for row in rows if row["outcome"] == Outcome.OK]
    for column in MEMORY_COLUMNS:
        if all(row.get(column) is not None for row in ok):
            return column
    return "peak_allocated_bytes"


def _is_measured(row: Row, column: str) -> bool:
    memory, speed = row.get(column), row.get("samples_per_second")
    if not memory or not speed:
        return False
    return memory > 0 and speed > 0 and math.isfinite(speed)


def _repeats(rows: Iterable[Row], axes: Mapping[str, str]) -> Iterable[list[Row]]:
    """Rows grouped by everything that is chosen."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        chosen = tuple(row.get(column) for column in axes.values())
        key = (row["training_recipe"], row["effective_batch"], *chosen)
        groups.setdefault(key, []).append(row)
    return groups.values()


def _combined(repeats: Sequence[Row], axes: Mapping[str, str], column: str) -> Configuration:
    first = repeats[0]
    flags = dict.fromkeys(flag for row in repeats for flag in flags_of(row))
    return Configuration(
        choices={axis: first[name] for axis, name in axes.items()},
        environment_id=first["environment_id"],
        training_recipe=recipe_of(first),
        memory_bytes=int(max(row[column] for row in repeats)),
        samples_per_second=float(statistics.median(row["samples_per_second"] for row in repeats)),
        row=first,
        trial_ids=tuple(row["trial_id"] for row in repeats),
        speed_error=speed_error(repeats),
        flags=tuple(flags),
    )
