"""Lists what ran differently in two trials: kernels, data types, idle time, clocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from jobs.anatomy_record import Anatomy
from orchestrator.analysis.explanation.breakdowns import Anatomies, Rows
from orchestrator.analysis.explanation.result import Difference
from orchestrator.analysis.repeatability import CLOSE

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
"""Columns of power and clocks.

If the power limit holds the clocks down, samples per second = power limit / joules per sample.
"""
EFFICIENCY_FIGURES = ("MFU", "backward / forward")
"""Figures of the anatomy that say how well the GPU was used."""
FIRST_STEP = "first_step_seconds"
"""Compilation and autotuning happen in the first step."""


def differing_columns(rows: Rows, columns: Mapping[str, str]) -> Iterator[Difference]:
    """The columns in which the rows differ; a value that both lack does not count.

    ``columns`` maps the name of a difference to its column.
    """
    for name, column in columns.items():
        before, after = (row.get(column) for row in rows)
        if before != after and (before or after):
            yield Difference(name=name, before=before, after=after)


def runtime_differences(rows: Rows, anatomies: Anatomies) -> Iterator[Difference]:
    """Everything that ran differently, beginning with the effective configuration."""
    yield from differing_columns(rows, {column: column for column in EFFECTIVE_COLUMNS})
    if anatomies is not None:
        yield from _efficiency(anatomies)
    yield from _idle_shares(rows)
    yield from _power(rows)
    yield from _first_step(rows)


def _idle_shares(rows: Rows) -> Iterator[Difference]:
    """Every difference in the shares of idle time.

    These shares are small, so even a small difference of them can explain a speed.
    """
    for difference in differing_columns(rows, {column: column for column in IDLE_COLUMNS}):
        values = (difference.before, difference.after)
        if all(value is not None and math.isfinite(value) for value in values):
            yield difference


def _power(rows: Rows) -> Iterator[Difference]:
    """Differences of power and clocks that are larger than those between equal trials."""
    for column in POWER_COLUMNS:
        before, after = (row.get(column) for row in rows)
        if before is None or after is None:
            continue
        # The variation between equal trials is about a percent, less than CLOSE.
        if abs(before - after) > CLOSE * max(before, after):
            yield Difference(name=column, before=before, after=after)


def _efficiency(anatomies: tuple[Anatomy, Anatomy]) -> Iterator[Difference]:
    before, after = (each.values("efficiency") | each.values("phases") for each in anatomies)
    for name in EFFICIENCY_FIGURES:
        if name in before and name in after and before[name] != after[name]:
            yield Difference(name=name, before=before[name], after=after[name])


def _first_step(rows: Rows) -> Iterator[Difference]:
    before, after = (row.get(FIRST_STEP) or 0.0 for row in rows)
    # Start-up times vary. So a difference is listed only if a compilation could cause it: by more
    # than a factor of two, and by more than a second.
    shortest, longest = sorted((before, after))
    if math.inf > longest > 2 * shortest and longest - shortest > 1:
        yield Difference(name=FIRST_STEP, before=before, after=after)
