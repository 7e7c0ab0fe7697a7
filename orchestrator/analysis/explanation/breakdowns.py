"""Breaks two trials' time per sample and memory down into parts that add up to the total."""

from collections.abc import Mapping, Sequence

from jobs.anatomy.memory.ledger import RESIDUAL
from jobs.anatomy.time.operations import IDLE
from jobs.anatomy_record import Anatomy
from orchestrator.analysis.explanation.result import Breakdown, Difference, Side, Source
from orchestrator.analysis.profiles import memory_layers
from orchestrator.analysis.repeatability import NEARLY
from orchestrator.storage.tables.rows import Row

REST = "not broken down"
"""The part that no instrument attributes to anything."""

Rows = tuple[Row, Row]
"""The two trials' rows, before and after."""
Anatomies = tuple[Anatomy, Anatomy] | None
"""The two trials' anatomies at their own speed; None unless both were profiled."""


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
