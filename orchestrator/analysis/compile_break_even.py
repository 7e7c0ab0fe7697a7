"""Does compiling pay: after how many optimizer steps a compiled trial has made up for its first one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from orchestrator.analysis.pareto import Row

_AXIS = "compile"
_EAGER = "none"
_READ = ("first_step_seconds", "step_seconds_median")


def break_even_steps(rows: Iterable[Row], axes: Mapping[str, str]) -> dict[str, float]:
    """Trial -> steps until its compiling has paid, for every compiled trial with an eager one otherwise equal.

    What the first step took longer, over what each later one takes less; infinite where that is nothing.
    """
    if _AXIS not in axes:
        return {}
    ok = [
        row
        for row in rows
        if row["outcome"] == "ok" and all(row.get(name) is not None for name in _READ)
    ]
    eager = {_otherwise(row, axes): row for row in ok if row[axes[_AXIS]] == _EAGER}
    compiled = [(row, eager.get(_otherwise(row, axes))) for row in ok if row[axes[_AXIS]] != _EAGER]
    return {row["trial_id"]: _steps(row, other) for row, other in compiled if other is not None}


def _otherwise(row: Row, axes: Mapping[str, str]) -> tuple[object, ...]:
    return row["environment_id"], *(
        row.get(column) for axis, column in axes.items() if axis != _AXIS
    )


def _steps(row: Row, eager: Row) -> float:
    spent = row["first_step_seconds"] - eager["first_step_seconds"]
    saved = eager["step_seconds_median"] - row["step_seconds_median"]
    return max(0.0, spent) / saved if saved > 0 else math.inf
