"""A comparison of two runs as people read it, as Markdown for a pull request, and as JSON."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from jobs.spec import to_json as plain
from orchestrator.analysis.comparison.changes import Change, Comparison, Shift
from orchestrator.analysis.dataset import Dataset
from orchestrator.reporting.json_output import strict
from orchestrator.reporting.markdown import grid
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.units import change, count, memory, number

_NO_CHANGE = "no single configuration changed beyond what equal runs differ by"


def render(before: Dataset, after: Dataset, comparison: Comparison) -> str:
    """Lines of text: what was compared, how the runs differ, what changed."""
    lines = [f"{_name(before)} -> {_name(after)}: {_counts(comparison)}"]
    lines += [f"  {line}" for line in _not_compared(comparison)]
    for own in comparison.differences:
        lines.append(f"  differs: {own.label}: {own.before} -> {own.after}")
    lines += _shifts(comparison)
    lines += [f"{own.kind}: {own.label}: {_figures(own)}" for own in comparison.changes]
    return visible("\n".join(lines if comparison.changes else [*lines, _NO_CHANGE]))


def markdown(before: Dataset, after: Dataset, comparison: Comparison) -> str:
    """The same for GitHub: tables, the long ones folded."""
    sentences = [line.capitalize() for line in _not_compared(comparison)]
    sentences = [_counts(comparison), *sentences, *_shifts(comparison)]
    blocks = [f"### {_name(before)} → {_name(after)}", *(f"{own}." for own in sentences)]
    differences = [[own.label, own.before, own.after] for own in comparison.differences]
    if differences:
        blocks.append("\n".join(grid(["differs", "before", "after"], differences)))
    changes = [[own.kind, own.label, _figures(own)] for own in comparison.changes]
    table = "\n".join(grid(["change", "configuration", "before → after"], changes))
    if len(changes) > 10:
        summary = f"<details><summary>{count(len(changes), 'change')}</summary>"
        table = f"{summary}\n\n{table}\n\n</details>"
    blocks.append(table if changes else f"{_NO_CHANGE.capitalize()}.")
    return visible("\n\n".join(blocks)) + "\n"


def to_json(before: Dataset, after: Dataset, comparison: Comparison) -> dict[str, Any]:
    """The same as plain JSON values; ratios are after divided by before."""
    runs = {"before": str(before.folder), "after": str(after.folder)}
    return strict({**runs, **plain(comparison)})


def _name(run: Dataset) -> str:
    hardware = "nothing measured" if run.main is None else run.main.hardware
    return f"{run.name} ({hardware})"


def _counts(comparison: Comparison) -> str:
    kinds = Counter(changed.kind for changed in comparison.changes)
    listed = [f"{occurrences} {kind}" for kind, occurrences in kinds.items()]
    return ", ".join([f"{count(comparison.matched, 'configuration')} compared", *listed])


def _not_compared(comparison: Comparison) -> Iterator[str]:
    counts = {
        "host-bound": comparison.host_bound,
        "without a GPU": comparison.without_gpu,
        "not GPU-bound, on different hosts": comparison.other_hosts,
        "too unsteady": comparison.unsteady,
    }
    reasons = [f"{amount} {reason}" for reason, amount in counts.items() if amount]
    if reasons:
        yield f"speed not judged: {'; '.join(reasons)}"
    if not comparison.losses_compared:
        yield "losses not judged: seed or number of steps differ"
    only = {"earlier": comparison.only_before, "later": comparison.only_after}
    for run, amount in only.items():
        if amount:
            yield f"only in the {run} run: {count(amount, 'configuration')}"


def _shifts(comparison: Comparison) -> Iterator[str]:
    limits = []
    shift = comparison.shift
    if shift is not None:
        yield f"all {shift.rows} GPU-bound rows together: {_interval(shift)}"
        limits.append(f"{_percent(shift.smallest_visible)} of all GPU-bound rows together")
    for own in comparison.technique_shifts:
        rows = f"{own.rows} rows with {own.axis} {own.value}"
        yield f"{rows}, against all other rows: {_interval(own)}"
    if comparison.smallest_visible is not None:
        single = _percent(comparison.smallest_visible)
        limits.append(f"{single} of a single GPU-bound row, in nine of ten cases")
    if limits:
        yield f"smallest change of speed that would be found: {'; '.join(limits)}"


def _interval(shift: Shift) -> str:
    change_of = "slower" if shift.ratio < 1 else "faster"
    decision = change_of if shift.is_real else "no change beyond what equal runs differ by"
    return f"{_signed(shift.ratio)} ({_signed(shift.low)} to {_signed(shift.high)}): {decision}"


def _figures(changed: Change) -> str:
    if changed.outcome is not None:
        # ``was out_of_memory: CUDA out of memory`` of a configuration that works now.
        text = f"was {changed.outcome}" if changed.kind == "fixed" else str(changed.outcome)
        return f"{text}: {changed.reason}" if changed.reason else text
    if changed.kind == "loss mismatch":
        if changed.after is None:
            return "losses are no longer finite"
        return f"mean loss {number(changed.after)} times the earlier run's"
    if changed.before is None or changed.after is None or changed.ratio is None:
        return ""
    figures = [memory(changed.before), memory(changed.after)]
    if changed.kind in ("faster", "slower"):
        figures = [f"{number(value)} samples/s" for value in (changed.before, changed.after)]
    # From doubling on a factor says more than a percentage.
    ratio = change(changed.ratio) if changed.ratio >= 2 else _signed(changed.ratio)
    if changed.all_rows is not None:
        ratio = f"{ratio}, all such rows {_signed(changed.all_rows)}"
    if changed.margin is not None:
        ratio = f"{ratio}, equal runs differ by up to ±{_percent(changed.margin)}"
    return f"{' → '.join(figures)} ({ratio})"


def _signed(ratio: float) -> str:
    """A ratio as a change with one decimal: ``−1.3 %``."""
    return f"{100 * (ratio - 1):+.1f} %".replace("-", "−")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
