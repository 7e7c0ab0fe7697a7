"""A comparison of two runs as people read it, as Markdown for a pull request, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from jobs.spec import to_json as plain
from orchestrator.analysis.comparison import Change, Comparison, MedianShift
from orchestrator.analysis.dataset import Dataset
from orchestrator.reporting.json_output import strict
from orchestrator.reporting.markdown import grid
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.units import change, count, memory, number

_OF_SPEED = ("faster", "slower")
FOLD_FROM = 10
"""Markdown folds a table of more changes than this."""


def render(before: Dataset, after: Dataset, comparison: Comparison) -> str:
    """Lines of text: what was compared, how the runs differ, what changed."""
    return visible("\n".join(_lines(before, after, comparison)))


def _lines(before: Dataset, after: Dataset, comparison: Comparison) -> Iterator[str]:
    yield f"{_name(before)} -> {_name(after)}: {_counts(comparison)}"
    for difference in comparison.differences:
        yield f"  {difference.label}: {difference.before} -> {difference.after}"
    if comparison.shift is not None:
        yield _shift(comparison.shift)
    for changed in comparison.changes:
        yield f"{changed.kind}: {changed.label}: {_figures(changed)}"
    if not comparison.changes:
        yield "no configuration changed"


def markdown(before: Dataset, after: Dataset, comparison: Comparison) -> str:
    """The same for GitHub: tables, the long ones folded."""
    return visible("\n".join(_markdown(before, after, comparison))) + "\n"


def to_json(before: Dataset, after: Dataset, comparison: Comparison) -> dict[str, Any]:
    """The same as plain JSON values; ratios are after divided by before."""
    runs = {"before": str(before.folder), "after": str(after.folder)}
    document: dict[str, Any] = strict({**runs, **plain(comparison)})
    return document


def _markdown(before: Dataset, after: Dataset, comparison: Comparison) -> Iterator[str]:
    yield f"### {_name(before)} → {_name(after)}"
    yield ""
    yield f"{_counts(comparison)}."
    if comparison.shift is not None:
        yield ""
        yield f"{_shift(comparison.shift)}."
    if comparison.differences:
        rows = []
        for difference in comparison.differences:
            rows.append([difference.label, difference.before, difference.after])
        yield ""
        yield from grid(["differs", "before", "after"], rows)
    yield ""
    if comparison.changes:
        yield from _change_table(comparison)
    else:
        yield "No configuration changed beyond chance."


def _change_table(comparison: Comparison) -> Iterator[str]:
    changes = []
    for changed in comparison.changes:
        changes.append([changed.kind, changed.label, _figures(changed)])
    is_long = len(changes) > FOLD_FROM
    if is_long:
        yield f"<details><summary>{count(len(changes), 'change')}</summary>"
        yield ""
    yield from grid(["change", "configuration", "before → after"], changes)
    if is_long:
        yield ""
        yield "</details>"


def _name(run: Dataset) -> str:
    hardware = "nothing measured"
    if run.main is not None:
        hardware = run.main.hardware
    return f"{run.name} ({hardware})"


def _counts(comparison: Comparison) -> str:
    kinds = Counter(changed.kind for changed in comparison.changes)
    parts = [f"{count(comparison.matched, 'configuration')} compared"]
    for kind, occurrences in kinds.items():
        parts.append(f"{occurrences} {kind}")
    parts += _not_compared(comparison)
    if comparison.only_before:
        parts.append(f"{comparison.only_before} missing from the later run")
    if comparison.only_after:
        parts.append(f"{comparison.only_after} new")
    return ", ".join(parts)


def _not_compared(comparison: Comparison) -> list[str]:
    """What was left out of the comparison, and why."""
    parts = []
    if comparison.unsteady:
        parts.append(f"{comparison.unsteady} too unsteady to compare by speed")
    if comparison.other_hosts:
        why = "because they are not GPU-bound and the hosts differ"
        parts.append(f"{comparison.other_hosts} not compared by speed, {why}")
    if not comparison.losses_compared:
        parts.append("losses not compared, because seed or number of steps differ")
    return parts


def _shift(shift: MedianShift) -> str:
    interval = f"{_signed(shift.low)} to {_signed(shift.high)}"
    decision = "no change"
    if shift.is_real and shift.ratio < 1:
        decision = "all slower"
    elif shift.is_real:
        decision = "all faster"
    return f"median of {shift.rows} steady rows: {_signed(shift.ratio)} ({interval}): {decision}"


def _figures(changed: Change) -> str:
    if changed.outcome is not None:
        return _failure(changed)
    if changed.kind == "loss mismatch":
        if changed.after is None:
            return "losses are no longer finite"
        return f"mean loss {number(changed.after)} times the earlier run's"
    if changed.before is None or changed.after is None or changed.ratio is None:
        return ""
    write: Callable[[float], str] = memory
    if changed.kind in _OF_SPEED:
        write = _speed
    return f"{write(changed.before)} → {write(changed.after)} ({_ratio(changed)})"


def _failure(changed: Change) -> str:
    """``was out_of_memory: CUDA out of memory`` of a configuration that works now."""
    text = str(changed.outcome)
    if changed.kind == "fixed":
        text = f"was {text}"
    if changed.reason:
        text = f"{text}: {changed.reason}"
    return text


def _speed(value: float) -> str:
    return f"{number(value)} samples/s"


def _ratio(changed: Change) -> str:
    assert changed.ratio is not None
    # From doubling on a factor says more than a percentage.
    ratio = _signed(changed.ratio)
    if changed.ratio >= 2:
        ratio = change(changed.ratio)
    if changed.margin is None:
        return ratio
    return f"{ratio}, chance explains ±{100 * changed.margin:.1f} %"


def _signed(ratio: float) -> str:
    """A ratio as a change with one decimal: ``−1.3 %``."""
    return f"{100 * (ratio - 1):+.1f} %".replace("-", "−")
