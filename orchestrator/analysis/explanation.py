"""Why one trial is faster or leaner than another: what the difference is made of, and what ran otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jobs.anatomy.memory.ledger import RESIDUAL
from jobs.anatomy.time.operations import IDLE
from jobs.anatomy_record import Anatomy
from jobs.record import Outcome
from orchestrator.analysis.loss_curves import LossCurves, loss_curves
from orchestrator.analysis.pareto import Row, training_of
from orchestrator.analysis.summary import label
from orchestrator.api import MeasuredRun
from orchestrator.storage.tables.anatomy_rows import at_speed_of, sizes_of, tellers

REST = "not told apart"
FIRST_STEP = "first_step_seconds"
"""Told of where it differs by more than this factor and by more than a second."""
_FIRST_STEP_FACTOR = 2.0
_SLOWER = 1.05
"""Said of a profiled step that took this much longer than those that counted."""

ALIKE = 0.01
"""Figures within this of each other are called the same."""
POWER: Mapping[str, tuple[str, str]] = {
    "joules_per_sample": ("energy a sample", " J"),
    "gpu_sm_clock_mhz": ("SM clock", " MHz"),
    "gpu_power_capped_share": ("time held down by the power limit", "%"),
}
"""Where the power limit holds the clocks down, speed is that power over the energy a sample: column -> name, unit."""
WAITED: Mapping[str, str] = {
    "host_bound_share": "micro-batches that left the device idle",
    "starved_forward_share": "time in forward passes that did",
    "starved_update_share": "time in updates that did",
}
RAN: Mapping[str, str] = {
    "matmul_dtype": "matrix products in",
    "attention_kernel": "attention by",
    "autocast": "autocast",
    "tf32": "TF32 allowed",
    "parameter_dtypes": "parameters in",
    "optimizer_class": "optimizer",
    "optimizer_implementation": "its update",
    "optimizer_state_dtypes": "its states in",
    "offload_optimizer_device": "its states on",
    "offload_parameter_device": "parameters on",
    "zero_stage": "ZeRO stage",
    "checkpointed_layers": "modules recomputed",
    "compiled_graphs": "compiled graphs",
    "compile_graph_breaks": "graph breaks",
    "dataloader_workers": "data loader's workers",
    "allocator_retries": "allocator's retries",
}
"""Column of what really ran -> its name in a sentence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One of the two trials."""

    trial_id: str
    label: str
    samples_per_second: float
    memory_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """One part of a figure, before and after."""

    name: str
    before: float
    after: float

    @property
    def change(self) -> float:
        """What it adds to the difference."""
        return self.after - self.before


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """A figure's difference and its parts, which add up to it; the largest change first."""

    before: float
    after: float
    source: Literal["anatomy", "columns"]
    """What tells the parts: both trials' anatomies, or the table's columns."""
    shares: tuple[Share, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """Something that was otherwise."""

    name: str
    before: Any
    after: Any
    unit: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """What is unlike about two trials, and what that did. "Before" is the first that was named."""

    hardware: str
    before: Side
    after: Side
    chosen: tuple[Fact, ...]
    """The axes on which they differ."""
    seconds_per_sample: Account
    module_seconds: Account | None
    """What the forward and backward passes took of that, by class of module; None where not both were taken apart."""
    memory_bytes: Account
    losses: LossCurves | None
    facts: tuple[Fact, ...]
    """What ran otherwise."""
    cautions: tuple[str, ...]


class NotExplainableError(ValueError):
    """Two trials of which nothing can be explained; the text says why."""


def explain(run: MeasuredRun, before: str, after: str) -> Explanation:
    """Set two trials of a run, named by the beginning of their identifiers, side by side.

    Raises LookupError for a name that no trial or several have, NotExplainableError for trials that were not measured
    or not on the same hardware with the same versions.
    """
    rows = (_row(run, before), _row(run, after))
    _check(rows)
    found = run.anatomies()
    taken_apart = tellers([(row["trial_id"],) for row in rows], run.follow_ups, found)
    told = [
        at_speed_of(found[taken_apart[row["trial_id"]]], row)
        for row in rows
        if row["trial_id"] in taken_apart
    ]
    anatomies = (told[0], told[1]) if len(told) == len(rows) else None
    sides = [_side(run, row) for row in rows]
    return Explanation(
        hardware=run.hardware_of(rows[0]["environment_id"]),
        before=sides[0],
        after=sides[1],
        chosen=tuple(
            Fact(name=axis, before=one, after=other)
            for axis, one, other in _differing(run.axes, rows)
        ),
        seconds_per_sample=_time(rows, anatomies),
        module_seconds=_modules(rows, anatomies),
        memory_bytes=_memory(rows, (sides[0].memory_bytes, sides[1].memory_bytes), anatomies),
        losses=loss_curves(rows, run.losses(), run.axes),
        facts=tuple(_facts(rows, anatomies)),
        cautions=tuple(_cautions(rows, anatomies)),
    )


Rows = tuple[Row, Row]
Anatomies = tuple[Anatomy, Anatomy] | None


def _row(run: MeasuredRun, name: str) -> Row:
    named = [row for row in (*run.rows, *run.follow_ups) if row["trial_id"].startswith(name)]
    exact = [row for row in named if row["trial_id"] == name]
    if len(exact or named) != 1 or not name:
        several = ", ".join(row["trial_id"] for row in named[:4])
        raise LookupError(
            f'several trials begin with "{name}": {several}' if named else f'no trial "{name}" here'
        )
    return (exact or named)[0]


def _check(rows: Rows) -> None:
    for row in rows:
        if row["outcome"] != Outcome.OK or not 0 < (row.get("samples_per_second") or 0) < math.inf:
            why = f": {row['reason']}" if row["reason"] else ""
            raise NotExplainableError(
                f"trial {row['trial_id']} was not measured: {row['outcome']}{why}"
            )
    if rows[0]["environment_id"] != rows[1]["environment_id"]:
        raise NotExplainableError(
            "the trials ran on unlike hardware or versions, which would explain anything"
        )


def _side(run: MeasuredRun, row: Row) -> Side:
    axes = [axis for axis in run.axes if axis in run.varying] or list(run.axes)
    return Side(
        trial_id=row["trial_id"],
        label=label({axis: row[column] for axis, column in run.axes.items()}, axes),
        samples_per_second=row["samples_per_second"],
        memory_bytes=row[run.memory_column_of(row["environment_id"])] or 0,
    )


def _differing(columns: Mapping[str, str], rows: Rows) -> Iterator[tuple[str, Any, Any]]:
    """Name, before and after of the columns in which the rows differ; what neither tells is alike."""
    for name, column in columns.items():
        one, other = (row.get(column) for row in rows)
        if one != other and (one or other):
            yield name, one, other


def _time(rows: Rows, anatomies: Anatomies) -> Account:
    """Seconds a sample, so that unlike batches compare; what the speed leaves beside kernels is time without any."""
    whole = [1 / row["samples_per_second"] for row in rows]
    if anatomies:
        parts = [_in_a_sample(one, row) for one, row in zip(anatomies, rows, strict=True)]
    else:
        waits = [(row.get("data_seconds_median") or 0.0) / row["effective_batch"] for row in rows]
        parts = [
            {"waiting for data": wait, "training": every - wait}
            for wait, every in zip(waits, whole, strict=True)
        ]
    return _account(whole, parts, anatomies, IDLE if anatomies else REST)


def _at_work(anatomy: Anatomy) -> dict[str, float]:
    """Kind of operation -> seconds of the profiled step."""
    return {name: seconds for name, seconds in anatomy.values("operations").items() if name != IDLE}


def _in_a_sample(anatomy: Anatomy, row: Row) -> dict[str, float]:
    """The same of a sample's time, as shares of it where the profiled step took longer than its like."""
    work = _at_work(anatomy)
    return {name: seconds * _samples_share(anatomy, row) for name, seconds in work.items()}


def _samples_share(anatomy: Anatomy, row: Row) -> float:
    step = max(sum(_at_work(anatomy).values()), row["effective_batch"] / row["samples_per_second"])
    share: float = 1 / step / row["samples_per_second"]
    return share


def _modules(rows: Rows, anatomies: Anatomies) -> Account | None:
    """Seconds a sample of what ran in the forward and backward passes."""
    parts = [
        {
            name: seconds * _samples_share(one, row)
            for name, seconds in one.values("modules").items()
        }
        for one, row in zip(anatomies or (), rows, strict=False)
    ]
    return (
        _account([sum(own.values()) for own in parts], parts, anatomies, REST)
        if parts and all(parts)
        else None
    )


def _memory(rows: Rows, whole: tuple[int, int], anatomies: Anatomies) -> Account:
    if anatomies:
        parts: list[Mapping[str, float]] = [one.values("memory") for one in anatomies]
    else:
        parts = [sizes_of(row) or {} for row in rows]
    return _account(whole, parts if all(parts) else [{}, {}], anatomies, REST)


def _account(
    whole: Sequence[float], parts: Sequence[Mapping[str, float]], anatomies: Anatomies, rest: str
) -> Account:
    """The parts and what they leave over, the ``rest``."""
    told = [{name: value for name, value in own.items() if name != RESIDUAL} for own in parts]
    named = [
        {**own, rest: every - sum(own.values())} for own, every in zip(told, whole, strict=True)
    ]
    names = list(dict.fromkeys([*named[0], *named[1]]))
    shares = [
        Share(name=name, before=named[0].get(name, 0.0), after=named[1].get(name, 0.0))
        for name in names
    ]
    shares.sort(key=lambda share: -abs(share.change))
    source: Literal["anatomy", "columns"] = "anatomy" if anatomies else "columns"
    return Account(before=whole[0], after=whole[1], source=source, shares=tuple(shares))


def _facts(rows: Rows, anatomies: Anatomies) -> Iterator[Fact]:
    for column, one, other in _differing({column: column for column in RAN}, rows):
        yield Fact(name=RAN[column], before=one, after=other)
    if anatomies:
        figures = [one.values("efficiency") | one.values("phases") for one in anatomies]
        for name, unit in (("MFU", "%"), ("backward / forward", "")):
            if all(name in own for own in figures) and figures[0][name] != figures[1][name]:
                yield Fact(name=name, before=figures[0][name], after=figures[1][name], unit=unit)
    for column, name in WAITED.items():
        one, other = (row.get(column) for row in rows)
        if (
            one is not None
            and other is not None
            and math.isfinite(one)
            and math.isfinite(other)
            and one != other
        ):
            yield Fact(name=name, before=one, after=other, unit="%")
    for column, (name, unit) in POWER.items():
        one, other = (row.get(column) for row in rows)
        if one is not None and other is not None and abs(one - other) > ALIKE * max(one, other):
            yield Fact(name=name, before=one, after=other, unit=unit)
    first = [row.get(FIRST_STEP) or 0.0 for row in rows]
    if math.inf > max(first) > _FIRST_STEP_FACTOR * min(first) and max(first) - min(first) > 1:
        yield Fact(name="first step", before=first[0], after=first[1], unit="s")


def _cautions(rows: Rows, anatomies: Anatomies) -> Iterator[str]:
    kinds = [training_of(row["equivalence"]) or "exact" for row in rows]
    if kinds[0] != kinds[1]:
        yield f"they do not train alike: {kinds[0]}, {kinds[1]}"
    for name, row, anatomy in zip("AB", rows, anatomies or (), strict=False):
        slower = (
            sum(_at_work(anatomy).values()) * row["samples_per_second"] / row["effective_batch"]
        )
        if slower > _SLOWER:
            yield f"{name}: the profiled step worked for {slower:.2f} times a step's time; its parts are shares of it"
    for name, row in zip("AB", rows, strict=True):
        yield from (f"{name}: {text}" for text in row.get("warnings") or ())
