"""A comparison of two runs as people read it, as Markdown for a pull request, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from jobs.spec import to_json as plain
from orchestrator.analysis.comparison import Change, Comparison, Shift
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
    for line in _not_compared(comparison):
        yield f"  {line}"
    for difference in comparison.differences:
        yield f"  differs: {difference.label}: {difference.before} -> {difference.after}"
    yield from _shifts(comparison)
    for changed in comparison.changes:
        yield f"{changed.kind}: {changed.label}: {_figures(changed)}"
    if not comparison.changes:
        yield "no single configuration changed beyond what equal runs differ by"


def markdown(before: Dataset, after: Dataset, comparison: Comparison) -> str:
    """The same for GitHub: tables, the long ones folded."""
    return visible("\n".join(_markdown(before, after, comparison))) + "\n"


def to_json(before: Dataset, after: Dataset, comparison: Comparison) -> dict[str, Any]:
    """The same as plain JSON values; ratios are after divided by before."""
    runs = {"before": str(before.folder), "after": str(after.folder)}
    document: dict[str, Any] = strict({**runs, **plain(comparison)})
    return document


def _markdown(before: Dataset, after: Dataset, comparison: Comparison) -> Iterator[str]:
    # What was compared, how the runs differ, then what changed.
    yield f"### {_name(before)} → {_name(after)}"
    yield ""
    yield f"{_counts(comparison)}."
    for line in _not_compared(comparison):
        yield ""
        yield f"{line.capitalize()}."
    for line in _shifts(comparison):
        yield ""
        yield f"{line}."
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
        yield "No single configuration changed beyond what equal runs differ by."


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
    return ", ".join(parts)


def _not_compared(comparison: Comparison) -> Iterator[str]:
    """What was left out, and why."""
    reasons = []
    if comparison.host_bound:
        reasons.append(f"{comparison.host_bound} host-bound")
    if comparison.without_gpu:
        reasons.append(f"{comparison.without_gpu} without a GPU")
    if comparison.other_hosts:
        reasons.append(f"{comparison.other_hosts} not GPU-bound, on different hosts")
    if comparison.unsteady:
        reasons.append(f"{comparison.unsteady} too unsteady")
    if reasons:
        yield f"speed not judged: {'; '.join(reasons)}"
    if not comparison.losses_compared:
        yield "losses not judged: seed or number of steps differ"
    if comparison.only_before:
        yield f"only in the earlier run: {count(comparison.only_before, 'configuration')}"
    if comparison.only_after:
        yield f"only in the later run: {count(comparison.only_after, 'configuration')}"


def _shifts(comparison: Comparison) -> Iterator[str]:
    """What changed for many rows together, and what would have been found."""
    shift = comparison.shift
    if shift is not None:
        yield f"all {shift.rows} GPU-bound rows together: {_interval(shift)}: {_decision(shift)}"
    for of_technique in comparison.technique_shifts:
        name = f"{of_technique.rows} rows with {of_technique.axis} {of_technique.value}"
        interval = _interval(of_technique)
        yield f"{name}, against all other rows: {interval}: {_decision(of_technique)}"
    limits = "; ".join(_smallest_visible(comparison))
    if limits:
        yield f"smallest change of speed that would be found: {limits}"


def _smallest_visible(comparison: Comparison) -> Iterator[str]:
    """The smallest change that the rows would show: of all together, and of a single one."""
    if comparison.shift is not None:
        yield f"{_percent(comparison.shift.smallest_visible)} of all GPU-bound rows together"
    if comparison.smallest_visible is not None:
        yield f"{_percent(comparison.smallest_visible)} of a single GPU-bound row, in the median"


def _interval(shift: Shift) -> str:
    return f"{_signed(shift.ratio)} ({_signed(shift.low)} to {_signed(shift.high)})"


def _decision(shift: Shift) -> str:
    if not shift.is_real:
        return "no change beyond what equal runs differ by"
    return "slower" if shift.ratio < 1 else "faster"


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
    return f"{ratio}, equal runs differ by up to ±{_percent(changed.margin)}"


def _signed(ratio: float) -> str:
    """A ratio as a change with one decimal: ``−1.3 %``."""
    return f"{100 * (ratio - 1):+.1f} %".replace("-", "−")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
