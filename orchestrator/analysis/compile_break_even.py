"""After how many optimizer steps has compiling paid for itself?

A compiled trial has a slow first step, and faster steps after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from jobs.record import Outcome
from orchestrator.storage.tables.rows import Row

_AXIS = "compile"
_EAGER = "none"
_NEEDED = ("first_step_seconds", "step_seconds_median")
_CACHE_HITS = ("compile_cache_hits", "inductor_cache_hits")


def set_break_even(
    all_rows: Iterable[dict[str, Any]], rows: Iterable[Row], axes: Mapping[str, str]
) -> None:
    """Set the column ``compile_break_even_steps`` of all rows; None if a row has no figure.

    ``rows`` are the rows that are compared: those of the search, without follow-ups.
    """
    break_even = break_even_steps(rows, axes)
    for row in all_rows:
        row["compile_break_even_steps"] = break_even.get(row["trial_id"])


def break_even_steps(rows: Iterable[Row], axes: Mapping[str, str]) -> dict[str, float]:
    """Compiled trial -> steps until compiling has paid for itself.

    A trial is listed only if an eager trial has the same other choices. The figure is the extra
    time of the first step, divided by the time that a later step saves. It is infinite if later
    steps save no time. A trial that took code from the node's compile cache does not show what
    compiling costs. It has no figure, unless its later steps save no time.
    """
    if _AXIS not in axes:
        return {}
    eager, compiled = _eager_and_compiled(rows, axes)
    steps = {}
    for row in compiled:
        reference = eager.get(_other_choices(row, axes))
        if reference is None:
            continue
        count = _steps(row, reference)
        if math.isinf(count) or not _took_code_from_cache(row):
            steps[row["trial_id"]] = count
    return steps


def _eager_and_compiled(
    rows: Iterable[Row], axes: Mapping[str, str]
) -> tuple[dict[tuple[object, ...], Row], list[Row]]:
    """The measured eager rows by their other choices, and the measured compiled rows."""
    eager: dict[tuple[object, ...], Row] = {}
    compiled: list[Row] = []
    for row in filter(_is_measured, rows):
        if row[axes[_AXIS]] == _EAGER:
            eager[_other_choices(row, axes)] = row
        else:
            compiled.append(row)
    return eager, compiled


def _took_code_from_cache(row: Row) -> bool:
    """Whether an earlier trial paid for a part of the compilation."""
    return any(row.get(name) for name in _CACHE_HITS)


def _is_measured(row: Row) -> bool:
    has_figures = all(row.get(name) is not None for name in _NEEDED)
    return row["outcome"] == Outcome.OK and has_figures


def _other_choices(row: Row, axes: Mapping[str, str]) -> tuple[object, ...]:
    """The environment, and every choice except compilation."""
    others = [row.get(column) for axis, column in axes.items() if axis != _AXIS]
    return (row["environment_id"], *others)


def _steps(row: Row, eager: Row) -> float:
    # Compilation happens in the first step, so the extra time of that step is its price.
    spent: float = row["first_step_seconds"] - eager["first_step_seconds"]
    saved: float = eager["step_seconds_median"] - row["step_seconds_median"]
    if saved <= 0:
        return math.inf
    # By chance the compiled first step can be shorter than the eager one. Its cost is then 0.
    return max(0.0, spent) / saved
