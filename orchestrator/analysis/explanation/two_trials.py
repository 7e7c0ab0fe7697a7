"""The explanation of two trials: finds both, checks them, and breaks their difference down."""

from __future__ import annotations

import math

from jobs.flags import flags_of
from jobs.record import Outcome
from orchestrator.analysis.configuration import memory_column
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.explanation.breakdowns import (
    Anatomies,
    Rows,
    memory_breakdown,
    module_breakdown,
    slower_profiles,
    time_breakdown,
)
from orchestrator.analysis.explanation.loss_curves import loss_curves
from orchestrator.analysis.explanation.result import Explanation, Side
from orchestrator.analysis.explanation.runtime import differing_columns, runtime_differences
from orchestrator.analysis.profiles import at_speed_of, profile_sources
from orchestrator.storage.tables.rows import Row, recipe_of


class NotExplainableError(ValueError):
    """The difference of two trials cannot be explained; the text says why."""


def explain(run: Dataset, before: str, after: str) -> Explanation:
    """Compare two trials of a run, each named by the beginning of its id.

    Raises LookupError if a name fits no trial, or several. Raises NotExplainableError if a trial
    was not measured, or if the trials were not measured in the same environment.
    """
    rows = (_find(run, before), _find(run, after))
    _check(rows)
    # Without both anatomies the breakdowns fall back to the table's columns.
    anatomies = _anatomies(run, rows)
    environment = run.environment_of(rows[0]["environment_id"])
    sides = (_side(run, rows[0], environment), _side(run, rows[1], environment))
    return Explanation(
        hardware="unknown hardware" if environment is None else environment.hardware,
        before=sides[0],
        after=sides[1],
        choices=tuple(differing_columns(rows, run.axes)),
        seconds_per_sample=time_breakdown(rows, anatomies),
        module_seconds=module_breakdown(rows, anatomies),
        memory_bytes=memory_breakdown(rows, sides, anatomies),
        losses=loss_curves(rows, run.losses, run.axes),
        runtime=tuple(runtime_differences(rows, anatomies)),
        recipes=(recipe_of(rows[0]), recipe_of(rows[1])),
        slower_profiles=slower_profiles(rows, anatomies),
    )


def _find(run: Dataset, name: str) -> Row:
    """The row of the trial with this id, else of the only trial whose id begins with it."""
    matching = [row for row in run.table.rows if row["trial_id"].startswith(name)]
    candidates = [row for row in matching if row["trial_id"] == name] or matching
    if not name or not candidates:
        raise LookupError(f'no trial "{name}" here')
    if len(candidates) > 1:
        several = ", ".join(row["trial_id"] for row in matching[:4])
        raise LookupError(f'several trials begin with "{name}": {several}')
    return candidates[0]


def _check(rows: Rows) -> None:
    """Raise NotExplainableError unless both trials have a speed, in the same environment."""
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
    """Both trials' anatomies; None unless both were profiled.

    Idle time and rates are computed from the step time of the compared trial itself, because that
    comes from more steps than a profile has.
    """
    configurations = [(row["trial_id"],) for row in rows]
    sources = profile_sources(configurations, run.follow_ups, run.anatomies)
    anatomies = []
    for row in rows:
        if row["trial_id"] not in sources:
            return None
        profiled = run.anatomies[sources[row["trial_id"]]]
        anatomies.append(at_speed_of(profiled, row))
    first, second = anatomies
    return first, second


def _side(run: Dataset, row: Row, environment: EnvironmentResults | None) -> Side:
    column = memory_column([row]) if environment is None else environment.memory_column
    return Side(
        trial_id=row["trial_id"],
        label=run.row_label(row),
        samples_per_second=row["samples_per_second"],
        memory_bytes=row[column] or 0,
        flags=flags_of(row),
    )
