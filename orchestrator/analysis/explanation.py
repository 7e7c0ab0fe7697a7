"""Why one trial is faster than another, or needs less memory: the parts of the difference, and what
ran differently.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jobs.anatomy.memory.ledger import RESIDUAL
from jobs.anatomy.time.operations import IDLE
from jobs.anatomy_record import Anatomy
from jobs.flags import Flag, flags_of
from jobs.record import Outcome
from jobs.spec import TrainingRecipe
from orchestrator.analysis.configuration import memory_column
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.loss_curves import LossCurves, loss_curves
from orchestrator.analysis.profiles import at_speed_of, memory_layers, profile_sources
from orchestrator.storage.tables.rows import Row, recipe_of

REST = "not broken down"
CLOSE = 0.01
"""Figures within this of each other are called the same."""
_FIRST_STEP_FACTOR, _FIRST_STEP_SECONDS = 2.0, 1.0
"""The first step is mentioned if it differs by more than this factor and by more than these
seconds.
"""
_SLOWER_PROFILE = 1.05
"""A caution is given for a profiled step that took this much longer than the counted ones."""

EFFECTIVE_COLUMNS = (
    "matmul_dtype",
    "attention_kernel",
    "autocast",
    "tf32",
    "parameter_dtypes",
    "optimizer_class",
    "optimizer_implementation",
    "optimizer_state_dtypes",
    "offload_optimizer_device",
    "offload_parameter_device",
    "zero_stage",
    "checkpointed_layers",
    "compiled_graphs",
    "compile_graph_breaks",
    "dataloader_workers",
    "allocator_retries",
)
"""What really ran."""
IDLE_COLUMNS = ("host_bound_share", "launch_bound_forward_share", "launch_bound_update_share")
POWER_COLUMNS = ("joules_per_sample", "gpu_sm_clock_mhz", "gpu_power_capped_share")
"""Where the power limit holds the clocks down, speed is that power divided by the energy per
sample.
"""
EFFICIENCY_FIGURES = ("MFU", "backward / forward")
FIRST_STEP = "first_step_seconds"

Source = Literal["anatomy", "columns"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One of the two trials."""

    trial_id: str
    label: str
    samples_per_second: float
    memory_bytes: int
    flags: tuple[Flag, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One part of a figure, before and after."""

    name: str
    before: float
    after: float

    @property
    def change(self) -> float:
        """What it adds to the difference."""
        return self.after - self.before


@dataclass(frozen=True, kw_only=True, slots=True)
class Breakdown:
    """A figure's difference and its parts, which add up to it; the largest change first."""

    before: float
    after: float
    source: Source
    """Where the parts come from: both trials' anatomies, or the table's columns."""
    terms: tuple[Term, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Something that was different: an axis, a column of the table, or a figure of the anatomy."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """How two trials differ, and what that did. "Before" is the trial that was named first."""

    hardware: str
    before: Side
    after: Side
    choices: tuple[Difference, ...]
    """The axes on which they differ."""
    seconds_per_sample: Breakdown
    module_seconds: Breakdown | None
    """Forward and backward pass by class of module; None unless both were profiled."""
    memory_bytes: Breakdown
    losses: LossCurves | None
    runtime: tuple[Difference, ...]
    """What ran differently."""
    recipes: tuple[TrainingRecipe, TrainingRecipe]
    slower_profiles: tuple[float | None, float | None]
    """Of each trial: the profiled step's busy time divided by a counted step, where that is more
    than 1.05.
    """


class NotExplainableError(ValueError):
    """Two trials of which nothing can be explained; the text says why."""


Rows = tuple[Row, Row]
Anatomies = tuple[Anatomy, Anatomy] | None


def explain(run: Dataset, before: str, after: str) -> Explanation:
    """Compare two trials of a run, named by the beginning of their identifiers.

    Raises LookupError for a name that no trial or several have, NotExplainableError for trials that
    were not measured, or not in the same environment.
    """
    rows = (_find(run, before), _find(run, after))
    _check(rows)
    anatomies = _anatomies(run, rows)
    sides = (_side(run, rows[0]), _side(run, rows[1]))
    environment = run.environment_of(rows[0]["environment_id"])
    return Explanation(
        hardware=environment.hardware if environment else "unknown hardware",
        before=sides[0],
        after=sides[1],
        choices=tuple(_differences(rows, run.axes)),
        seconds_per_sample=_time(rows, anatomies),
        module_seconds=_modules(rows, anatomies),
        memory_bytes=_memory(rows, sides, anatomies),
        losses=loss_curves(rows, run.losses, run.axes),
        runtime=tuple(_runtime(rows, anatomies)),
        recipes=(recipe_of(rows[0]), recipe_of(rows[1])),
        slower_profiles=_slower_profiles(rows, anatomies),
    )


def _find(run: Dataset, name: str) -> Row:
    named = [row for row in run.table.rows if row["trial_id"].startswith(name)]
    exact = [row for row in named if row["trial_id"] == name]
    found = exact or named
    if not name or not found:
        raise LookupError(f'no trial "{name}" here')
    if len(found) > 1:
        several = ", ".join(row["trial_id"] for row in named[:4])
        raise LookupError(f'several trials begin with "{name}": {several}')
    return found[0]


def _check(rows: Rows) -> None:
    for row in rows:
        speed = row.get("samples_per_second") or 0
        if row["outcome"] != Outcome.OK or not 0 < speed < math.inf:
            why = f": {row['reason']}" if row["reason"] else ""
            raise NotExplainableError(
                f"trial {row['trial_id']} was not measured: {row['outcome']}{why}"
            )
    if rows[0]["environment_id"] != rows[1]["environment_id"]:
        raise NotExplainableError(
            "the trials ran on different hardware or versions, which alone may explain everything"
        )


def _anatomies(run: Dataset, rows: Rows) -> Anatomies:
    """Both trials' anatomies at their own speed; None unless both were profiled."""
    names = [(row["trial_id"],) for row in rows]
    sources = profile_sources(names, run.follow_ups, run.anatomies)
    if any(row["trial_id"] not in sources for row in rows):
        return None
    first, second = (at_speed_of(run.anatomies[sources[row["trial_id"]]], row) for row in rows)
    return first, second


def _side(run: Dataset, row: Row) -> Side:
    environment = run.environment_of(row["environment_id"])
    column = environment.memory_column if environment else memory_column([row])
    return Side(
        trial_id=row["trial_id"],
        label=run.row_label(row),
        samples_per_second=row["samples_per_second"],
        memory_bytes=row[column] or 0,
        flags=flags_of(row),
    )


def _differences(rows: Rows, columns: Mapping[str, str]) -> Iterator[Difference]:
    """The columns in which the rows differ; a value that both lack does not count."""
    for name, column in columns.items():
        before, after = (row.get(column) for row in rows)
        if before != after and (before or after):
            yield Difference(name=name, before=before, after=after)


def _time(rows: Rows, anatomies: Anatomies) -> Breakdown:
    """Seconds per sample, so that different batches compare.

    With anatomies the rest is time without a kernel.
    """
    totals = [1 / row["samples_per_second"] for row in rows]
    if anatomies:
        parts = [_operations(anatomy, row) for anatomy, row in zip(anatomies, rows, strict=True)]
        return _breakdown(totals, parts, "anatomy", IDLE)
    parts = []
    for total, row in zip(totals, rows, strict=True):
        wait = (row.get("data_seconds_median") or 0.0) / row["effective_batch"]
        parts.append({"waiting for data": wait, "training": total - wait})
    return _breakdown(totals, parts, "columns", REST)


def _busy(anatomy: Anatomy) -> dict[str, float]:
    """Kind of operation -> seconds of the profiled step, idle time left out."""
    operations = anatomy.values("operations")
    return {name: seconds for name, seconds in operations.items() if name != IDLE}


def _operations(anatomy: Anatomy, row: Row) -> dict[str, float]:
    """Kind of operation -> seconds per sample."""
    scale = _per_sample(anatomy, row)
    return {name: seconds * scale for name, seconds in _busy(anatomy).items()}


def _per_sample(anatomy: Anatomy, row: Row) -> float:
    """Turns seconds of the profiled step into seconds per sample.

    A profiled step that was busy for longer than a counted step lasts is scaled down to that step.
    """
    counted_step = row["effective_batch"] / row["samples_per_second"]
    step = max(sum(_busy(anatomy).values()), counted_step)
    return float(1 / step / row["samples_per_second"])


def _modules(rows: Rows, anatomies: Anatomies) -> Breakdown | None:
    """Seconds per sample of forward and backward pass, by class of module."""
    if anatomies is None:
        return None
    parts = []
    for anatomy, row in zip(anatomies, rows, strict=True):
        scale = _per_sample(anatomy, row)
        modules = anatomy.values("modules")
        parts.append({name: seconds * scale for name, seconds in modules.items()})
    if not all(parts):
        return None
    totals = [sum(own.values()) for own in parts]
    return _breakdown(totals, parts, "anatomy", REST)


def _memory(rows: Rows, sides: tuple[Side, Side], anatomies: Anatomies) -> Breakdown:
    totals = [side.memory_bytes for side in sides]
    parts: list[Mapping[str, float]]
    if anatomies:
        parts = [anatomy.values("memory") for anatomy in anatomies]
    else:
        parts = [memory_layers(row) or {} for row in rows]
    if not all(parts):
        parts = [{}, {}]
    return _breakdown(totals, parts, "anatomy" if anatomies else "columns", REST)


def _breakdown(
    totals: Sequence[float], parts: Sequence[Mapping[str, float]], source: Source, rest: str
) -> Breakdown:
    """The parts, and under the name ``rest`` what they leave of the totals."""
    before, after = (_with_rest(own, total, rest) for own, total in zip(parts, totals, strict=True))
    terms = [
        Term(name=name, before=before.get(name, 0.0), after=after.get(name, 0.0))
        for name in dict.fromkeys([*before, *after])
    ]
    terms.sort(key=lambda term: -abs(term.change))
    return Breakdown(before=totals[0], after=totals[1], source=source, terms=tuple(terms))


def _with_rest(parts: Mapping[str, float], total: float, rest: str) -> dict[str, float]:
    known = {name: value for name, value in parts.items() if name != RESIDUAL}
    return {**known, rest: total - sum(known.values())}


def _runtime(rows: Rows, anatomies: Anatomies) -> Iterator[Difference]:
    yield from _differences(rows, {column: column for column in EFFECTIVE_COLUMNS})
    if anatomies:
        yield from _efficiency(anatomies)
    for column in IDLE_COLUMNS:
        before, after = (row.get(column) for row in rows)
        if _is_finite(before) and _is_finite(after) and before != after:
            yield Difference(name=column, before=before, after=after)
    for column in POWER_COLUMNS:
        before, after = (row.get(column) for row in rows)
        if before is None or after is None:
            continue
        if abs(before - after) > CLOSE * max(before, after):
            yield Difference(name=column, before=before, after=after)
    yield from _first_step(rows)


def _efficiency(anatomies: tuple[Anatomy, Anatomy]) -> Iterator[Difference]:
    before, after = (own.values("efficiency") | own.values("phases") for own in anatomies)
    for name in EFFICIENCY_FIGURES:
        if name in before and name in after and before[name] != after[name]:
            yield Difference(name=name, before=before[name], after=after[name])


def _first_step(rows: Rows) -> Iterator[Difference]:
    before, after = (row.get(FIRST_STEP) or 0.0 for row in rows)
    shortest, longest = sorted((before, after))
    is_longer = math.inf > longest > _FIRST_STEP_FACTOR * shortest
    if is_longer and longest - shortest > _FIRST_STEP_SECONDS:
        yield Difference(name=FIRST_STEP, before=before, after=after)


def _is_finite(value: Any) -> bool:
    return value is not None and math.isfinite(value)


def _slower_profiles(rows: Rows, anatomies: Anatomies) -> tuple[float | None, float | None]:
    if anatomies is None:
        return None, None
    factors: list[float | None] = []
    for anatomy, row in zip(anatomies, rows, strict=True):
        busy_seconds = sum(_busy(anatomy).values())
        factor = busy_seconds * row["samples_per_second"] / row["effective_batch"]
        factors.append(factor if factor > _SLOWER_PROFILE else None)
    return factors[0], factors[1]
