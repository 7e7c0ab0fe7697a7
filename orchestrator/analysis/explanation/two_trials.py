"""The explanation of two trials: finds both, checks them, and lists how they differ."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from jobs.flags import flags_of
from jobs.record import Outcome
from orchestrator.analysis.configuration import memory_column
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.explanation.breakdowns import (
    Anatomies,
    Rows,
    memory_breakdown,
    module_breakdown,
    slower_profiles,
    time_breakdown,
)
from orchestrator.analysis.explanation.result import Difference, Explanation, LossCurves, Side
from orchestrator.analysis.loss_parity.loss_checks import compared
from orchestrator.analysis.loss_parity.windows import state_of
from orchestrator.analysis.profiles import at_speed_of, profile_sources
from orchestrator.analysis.repeatability import CLOSE
from orchestrator.storage.tables.rows import Row, recipe_of

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
"""Columns of the effective configuration."""
IDLE_COLUMNS = ("host_bound_share", "launch_bound_forward_share", "launch_bound_update_share")
"""Shares of the step in which the GPU waits for the host."""
POWER_COLUMNS = ("joules_per_sample", "gpu_sm_clock_mhz", "gpu_power_capped_share")
"""Columns of power and clocks. If the power limit holds the clocks down, samples per second = power
limit / joules per sample."""
EFFICIENCY_FIGURES = ("MFU", "backward / forward")
"""Figures of the anatomy that say how well the GPU was used."""
FIRST_STEP = "first_step_seconds"
"""Compilation and autotuning happen in the first step."""


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
    column = memory_column(rows) if environment is None else environment.memory_column
    first, second = (
        Side(
            trial_id=row["trial_id"],
            label=run.row_label(row),
            samples_per_second=row["samples_per_second"],
            memory_bytes=row[column] or 0,
            flags=flags_of(row),
        )
        for row in rows
    )
    return Explanation(
        hardware="unknown hardware" if environment is None else environment.hardware,
        before=first,
        after=second,
        choices=tuple(_differing(rows, run.axes)),
        seconds_per_sample=time_breakdown(rows, anatomies),
        module_seconds=module_breakdown(rows, anatomies),
        memory_bytes=memory_breakdown(rows, (first, second), anatomies),
        losses=_loss_curves(run, rows),
        runtime=tuple(_runtime_differences(rows, anatomies)),
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
    ids = [row["trial_id"] for row in rows]
    sources = profile_sources([(trial_id,) for trial_id in ids], run.follow_ups, run.anatomies)
    if not all(trial_id in sources for trial_id in ids):
        return None
    first, second = (at_speed_of(run.anatomies[sources[row["trial_id"]]], row) for row in rows)
    return first, second


def _loss_curves(run: Dataset, rows: Rows) -> LossCurves | None:
    """The losses of both, the second compared with the first; None if one has no finite loss."""
    before, after = (run.losses.get(row["trial_id"], ()) for row in rows)
    # Losses after one that is not finite cannot be compared.
    pairs = zip(before, after, strict=False)
    steps = len(list(itertools.takewhile(lambda pair: all(map(math.isfinite, pair)), pairs)))
    if not steps:
        return None
    before, after = tuple(before[:steps]), tuple(after[:steps])
    windows = compared(rows[1], rows[0], after, before, run.axes)
    return LossCurves(before=before, after=after, windows=windows, state=state_of(windows))


def _differing(rows: Rows, columns: Mapping[str, str]) -> Iterator[Difference]:
    """The columns in which the rows differ; a value that both lack does not count.

    ``columns`` maps the name of a difference to its column.
    """
    for name, column in columns.items():
        before, after = (row.get(column) for row in rows)
        if before != after and (before or after):
            yield Difference(name=name, before=before, after=after)


def _runtime_differences(rows: Rows, anatomies: Anatomies) -> Iterator[Difference]:
    """Everything that ran differently, beginning with the effective configuration."""
    yield from _differing(rows, {column: column for column in EFFECTIVE_COLUMNS})
    if anatomies is not None:
        figures = [each.values("efficiency") | each.values("phases") for each in anatomies]
        for name in EFFICIENCY_FIGURES:
            values = [own.get(name) for own in figures]
            if None not in values and values[0] != values[1]:
                yield Difference(name=name, before=values[0], after=values[1])
    # Shares of idle time are small, so even a small difference of them can explain a speed.
    for difference in _differing(rows, {column: column for column in IDLE_COLUMNS}):
        shares = (difference.before, difference.after)
        if all(share is not None and math.isfinite(share) for share in shares):
            yield difference
    for column in POWER_COLUMNS:
        before, after = (row.get(column) for row in rows)
        if before is None or after is None:
            continue
        # The variation between equal trials is about a percent, less than CLOSE.
        if abs(before - after) > CLOSE * max(before, after):
            yield Difference(name=column, before=before, after=after)
    before, after = (row.get(FIRST_STEP) or 0.0 for row in rows)
    # Start-up times vary. So a difference is listed only if a compilation could cause it: by more
    # than a factor of two, and by more than a second.
    shortest, longest = sorted((before, after))
    if math.inf > longest > 2 * shortest and longest - shortest > 1:
        yield Difference(name=FIRST_STEP, before=before, after=after)
