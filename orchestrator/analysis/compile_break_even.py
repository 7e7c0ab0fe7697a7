"""After how many optimizer steps has compiling paid for itself?

A compiled trial has a slow first step, and faster steps after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from jobs.record import Outcome
from jobs.techniques import AXES
from orchestrator.storage.tables.rows import Row

_AXIS = "compile"
_NEEDED = ("first_step_seconds", "step_seconds_median")
_CACHE_HITS = ("compile_cache_hits", "inductor_cache_hits")


def break_even_steps(rows: Iterable[Row], axes: Mapping[str, str]) -> dict[str, float]:
    """Compiled trial -> steps until compiling has paid for itself.

    A trial is listed only if an eager trial has the same other choices. The figure is the extra
    time of the first step, divided by the time that a later step saves. It is infinite if later
    steps save no time. A trial that took code from the node's compile cache does not show what
    compiling costs. It has no figure, unless its later steps save no time.
    """
    if _AXIS not in axes:
        return {}

    def other_choices(row: Row) -> tuple[object, ...]:
        """The environment, and every choice except compilation."""
        others = [row.get(column) for axis, column in axes.items() if axis != _AXIS]
        return (row["environment_id"], *others)

    eager: dict[tuple[object, ...], Row] = {}
    compiled: list[Row] = []
    for row in rows:
        if row["outcome"] != Outcome.OK or any(row.get(name) is None for name in _NEEDED):
            continue
        if row[axes[_AXIS]] == AXES[_AXIS].default:
            eager[other_choices(row)] = row
        else:
            compiled.append(row)
    steps = {}
    for row in compiled:
        reference = eager.get(other_choices(row))
        if reference is None:
            continue
        # Compilation happens in the first step, so the extra time of that step is its price.
        spent = row["first_step_seconds"] - reference["first_step_seconds"]
        saved = reference["step_seconds_median"] - row["step_seconds_median"]
        if saved <= 0:
            steps[row["trial_id"]] = math.inf
        elif not any(row.get(name) for name in _CACHE_HITS):
            # By chance the compiled first step can be shorter than the eager one: a cost of 0.
            steps[row["trial_id"]] = max(0.0, spent) / saved
    return steps
