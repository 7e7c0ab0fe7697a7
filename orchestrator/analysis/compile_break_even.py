"""After how many optimizer steps has compiling paid for itself?

A compiled trial has a slow first step, and faster steps after it.
"""

import math
from collections.abc import Iterable, Mapping

from jobs.record import Outcome
from jobs.techniques import AXES
from orchestrator.analysis.objectives import CACHE_HITS
from orchestrator.storage.tables.rows import Row

_NEEDED = ("first_step_seconds", "step_seconds_median")


def break_even_steps(rows: Iterable[Row], axes: Mapping[str, str]) -> dict[str, float]:
    """Compiled trial -> steps until compiling has paid for itself; infinite if they save no time.
    Listed if an eager trial has the same other choices, and no code came from the node's compile
    cache."""
    compile_column = axes.get("compile")
    if compile_column is None:
        return {}
    equal = ["environment_id", *(column for column in axes.values() if column != compile_column)]
    compiled: list[tuple[tuple[object, ...], Row]] = []
    eager: dict[tuple[object, ...], Row] = {}
    for row in rows:
        if row["outcome"] == Outcome.OK and None not in map(row.get, _NEEDED):
            others = tuple(map(row.get, equal))
            if row[compile_column] == AXES["compile"].default:
                eager[others] = row
            else:
                compiled.append((others, row))
    figures = {row["trial_id"]: _steps(row, eager[key]) for key, row in compiled if key in eager}
    return {trial_id: steps for trial_id, steps in figures.items() if steps is not None}


def _steps(compiled: Row, eager: Row) -> float | None:
    # Compilation happens in the first step, so the extra time of that step is its price.
    spent = compiled["first_step_seconds"] - eager["first_step_seconds"]
    saved = eager["step_seconds_median"] - compiled["step_seconds_median"]
    if saved <= 0:
        return math.inf
    # By chance the compiled first step can be shorter than the eager one: a cost of 0.
    is_cached = any(compiled.get(name) for name in CACHE_HITS)
    return None if is_cached else float(max(0.0, spent) / saved)
