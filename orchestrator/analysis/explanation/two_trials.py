"""The explanation of two trials: finds and checks both, and breaks down how they differ."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from jobs.anatomy.memory.ledger import RESIDUAL
from jobs.anatomy.time.operations import IDLE
from jobs.anatomy_record import Anatomy
from jobs.flags import flags_of
from jobs.record import Outcome
from orchestrator.analysis.configuration import memory_column
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.explanation.result import (
    Breakdown,
    Difference,
    Explanation,
    LossCurves,
    Side,
    Source,
)
from orchestrator.analysis.loss_parity.loss_checks import compared
from orchestrator.analysis.loss_parity.windows import state_of
from orchestrator.analysis.profiles import anatomy_of, memory_layers
from orchestrator.analysis.repeatability import CLOSE, NEARLY
from orchestrator.storage.tables.rows import Row, recipe_of
from orchestrator.units import listed

REST = "not broken down"
"""The part that no instrument attributes to anything."""

Rows = tuple[Row, Row]
"""The two trials' rows, before and after."""
Anatomies = tuple[Anatomy, Anatomy] | None
"""The two trials' anatomies at their own speed; None unless both were profiled."""


def _differ(before: Any, after: Any) -> bool:
    """Whether they differ; a value that both lack does not count."""
    return bool(before != after and (before or after))


def _are_apart(before: float | None, after: float | None, tolerance: float = 0.0) -> bool:
    """Whether both figures are known, and differ by more than a share of the larger."""
    if before is None or after is None or not math.isfinite(before + after):
        return False
    return abs(before - after) > tolerance * max(before, after)


_are_clearly_apart = partial(_are_apart, tolerance=CLOSE)
"""The variation between equal trials is about a percent, less than ``CLOSE``."""


def _could_be_compiling(before: float | None, after: float | None) -> bool:
    """Whether two first steps differ by so much that a compilation or autotuning could be it."""
    # Start-up times vary by less than a factor of two, or by less than a second.
    shortest, longest = sorted((before or 0.0, after or 0.0))
    return math.inf > longest > 2 * shortest and longest - shortest > 1


RUNTIME: Mapping[Callable[[Any, Any], bool], tuple[str, ...]] = {
    _differ: (
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
    ),
    # Shares of waiting are small, so even a small difference can explain a speed.
    _are_apart: (
        "MFU",
        "backward / forward",
        "host_bound_share",
        "launch_bound_forward_share",
        "launch_bound_backward_share",
        "launch_bound_update_share",
    ),
    # Under a power limit, samples per second = power limit / joules per sample.
    _are_clearly_apart: ("joules_per_sample", "gpu_sm_clock_mhz", "gpu_power_capped_share"),
    _could_be_compiling: ("first_step_seconds",),
}
"""When a difference is worth showing -> columns of the table, or figures of the anatomy."""


class NotExplainableError(ValueError):
    """The difference of two trials cannot be explained; the text says why."""


def explain(run: Dataset, before: str, after: str) -> Explanation:
    """Compare two trials, each named by the beginning of its id. Raises LookupError if a name fits
    no trial or several, NotExplainableError for trials not measured, or in different
    environments."""
    rows = (_find(run, before), _find(run, after))
    _check(rows)
    first, second = (anatomy_of(run, (row["trial_id"],), row) for row in rows)
    anatomies = None if first is None or second is None else (first, second)
    environment = run.environment_of(rows[0]["environment_id"])
    column = memory_column(rows) if environment is None else environment.memory_column
    before_side, after_side = (
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
        before=before_side,
        after=after_side,
        choices=tuple(_differences(rows, run.axes)),
        seconds_per_sample=time_breakdown(rows, anatomies),
        module_seconds=module_breakdown(rows, anatomies),
        memory_bytes=memory_breakdown(rows, (before_side, after_side), anatomies),
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
        known = [row["trial_id"] for row in run.table.rows]
        raise LookupError(f'no trial "{name}" here; the run has {listed(known, 4)}')
    if len(candidates) > 1:
        several = ", ".join(row["trial_id"] for row in matching[:4])
        raise LookupError(f'several trials begin with "{name}": {several}')
    return candidates[0]


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


def _loss_curves(run: Dataset, rows: Rows) -> LossCurves | None:
    before, after = (run.losses.get(row["trial_id"], ()) for row in rows)
    # Losses after one that is not finite cannot be compared.
    pairs = zip(before, after, strict=False)
    steps = len(list(itertools.takewhile(lambda pair: all(map(math.isfinite, pair)), pairs)))
    if not steps:
        return None
    before, after = tuple(before[:steps]), tuple(after[:steps])
    windows = compared(rows[1], rows[0], after, before, run.axes)
    return LossCurves(before=before, after=after, windows=windows, state=state_of(windows))


def _runtime_differences(rows: Rows, anatomies: Anatomies) -> Iterator[Difference]:
    """Everything that ran differently, beginning with the effective configuration."""
    figures: list[Row] = list(rows)
    if anatomies is not None:
        figures = [
            {**row, **anatomy.values("efficiency"), **anatomy.values("phases")}
            for row, anatomy in zip(rows, anatomies, strict=True)
        ]
    for is_shown, names in RUNTIME.items():
        yield from _differences(figures, {name: name for name in names}, is_shown)


def _differences(
    rows: Sequence[Row], columns: Mapping[str, str], is_shown: Callable[[Any, Any], bool] = _differ
) -> Iterator[Difference]:
    """The columns whose two values are shown; ``columns``: name of a difference -> its column."""
    for name, column in columns.items():
        before, after = (row.get(column) for row in rows)
        if is_shown(before, after):
            yield Difference(name=name, before=before, after=after)


def time_breakdown(rows: Rows, anatomies: Anatomies) -> Breakdown:
    """Seconds per sample, so that trials with different batches can be compared. With anatomies the
    parts are kinds of operations, and the rest is time without a kernel."""
    totals = [1 / row["samples_per_second"] for row in rows]
    # A profile of the kernels says more than the table; it counts if both trials have one.
    if anatomies is not None:
        busy = [_busy(anatomy) for anatomy in anatomies]
        return _breakdown(totals, _per_sample(busy, anatomies, rows), "anatomy", IDLE)
    # The table has the wait per optimizer step.
    waits = [(row.get("data_seconds_median") or 0.0) / row["effective_batch"] for row in rows]
    parts = [
        {"waiting for data": wait, "training": total - wait}
        for total, wait in zip(totals, waits, strict=True)
    ]
    return _breakdown(totals, parts, "columns", REST)


def module_breakdown(rows: Rows, anatomies: Anatomies) -> Breakdown | None:
    """Seconds per sample of forward and backward pass, by class of module, if both were
    profiled."""
    if anatomies is None:
        return None
    modules = [anatomy.values("modules") for anatomy in anatomies]
    if not all(modules):
        return None
    parts = _per_sample(modules, anatomies, rows)
    totals = [sum(each.values()) for each in parts]
    return _breakdown(totals, parts, "anatomy", REST)


def memory_breakdown(rows: Rows, sides: tuple[Side, Side], anatomies: Anatomies) -> Breakdown:
    """Bytes at the peak, by purpose. If a trial has no parts, the total is the only part."""
    parts: list[Mapping[str, float]] = [memory_layers(row) or {} for row in rows]
    if anatomies is not None:
        parts = [anatomy.values("memory") for anatomy in anatomies]
    # If one trial has no parts, the parts of the other have nothing to be compared with.
    if not all(parts):
        parts = [{}, {}]
    source: Source = "columns" if anatomies is None else "anatomy"
    return _breakdown([side.memory_bytes for side in sides], parts, source, REST)


def slower_profiles(rows: Rows, anatomies: Anatomies) -> tuple[float | None, float | None]:
    """Busy time of the profiled step / time of a counted step, which the profiler slowed so that it
    shows other shares of the time; None if nearly as fast, or not profiled."""
    if anatomies is None:
        return None, None
    factors = [
        sum(_busy(anatomy).values()) * row["samples_per_second"] / row["effective_batch"]
        for anatomy, row in zip(anatomies, rows, strict=True)
    ]
    first, second = (factor if factor > 1 + NEARLY else None for factor in factors)
    return first, second


def _busy(anatomy: Anatomy) -> dict[str, float]:
    operations = anatomy.values("operations").items()
    return {name: seconds for name, seconds in operations if name != IDLE}


def _per_sample(
    parts: Sequence[Mapping[str, float]], anatomies: Sequence[Anatomy], rows: Rows
) -> list[dict[str, float]]:
    """A profiled step that was busy for longer than a counted one is scaled down to the latter."""
    scaled = []
    for seconds, anatomy, row in zip(parts, anatomies, rows, strict=True):
        counted_step = row["effective_batch"] / row["samples_per_second"]
        step = max(sum(_busy(anatomy).values()), counted_step)
        scale = 1 / step / row["samples_per_second"]
        scaled.append({name: value * scale for name, value in seconds.items()})
    return scaled


def _breakdown(
    totals: Sequence[float], parts: Sequence[Mapping[str, float]], source: Source, rest: str
) -> Breakdown:
    complete = []
    for total, of_total in zip(totals, parts, strict=True):
        # The residual of the profile refers to the profile's total. Here the trial's total counts.
        named = {name: value for name, value in of_total.items() if name != RESIDUAL}
        complete.append({**named, rest: total - sum(named.values())})
    before, after = complete
    terms = [
        Difference(name=name, before=before.get(name, 0.0), after=after.get(name, 0.0))
        for name in {**before, **after}
    ]
    terms.sort(key=lambda term: -abs(term.change))
    return Breakdown(before=totals[0], after=totals[1], source=source, terms=tuple(terms))
