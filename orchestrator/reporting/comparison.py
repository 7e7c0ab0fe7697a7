"""A comparison as people read it, as Markdown for a pull request, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jobs.spec import to_json as plain
from orchestrator.analysis.comparison import Change, Comparison, Shift
from orchestrator.api import MeasuredRun
from orchestrator.units import change, count, memory, number

_SPEED = ("faster", "slower")


def render(before: MeasuredRun, after: MeasuredRun, found: Comparison) -> str:
    """Lines of text: what was compared, what differs, what changed."""
    lines = [f"{_name(before)} -> {_name(after)}: {_counts(found)}"]
    lines += [f"  {what}: {old} -> {new}" for what, old, new in found.differences]
    lines += [] if found.shift is None else [_shift(found.shift)]
    lines += [f"{c.kind}: {c.label}: {_figures(c)}" for c in found.changes] or [
        "no configuration changed"
    ]
    return "\n".join(lines)


def markdown(before: MeasuredRun, after: MeasuredRun, found: Comparison) -> str:
    """The same for GitHub: tables, the long ones folded."""
    return "\n".join(_markdown(before, after, found)) + "\n"


def to_json(before: MeasuredRun, after: MeasuredRun, found: Comparison) -> dict[str, Any]:
    """The same as plain JSON values; ratios are after to before."""
    content = {name: value for name, value in plain(found).items() if name != "text"}
    return {"before": str(before.folder), "after": str(after.folder), **content}


def _markdown(before: MeasuredRun, after: MeasuredRun, found: Comparison) -> Iterator[str]:
    yield f"### {_name(before)} → {_name(after)}"
    yield ""
    yield _counts(found) + "."
    if found.shift is not None:
        yield ""
        yield _shift(found.shift) + "."
    if found.differences:
        yield from ("", "| differs | before | after |", "| --- | --- | --- |")
        yield from (
            f"| {_cell(what)} | {_cell(old)} | {_cell(new)} |"
            for what, old, new in found.differences
        )
    if not found.changes:
        yield from ("", "No configuration changed beyond chance.")
        return
    folded = len(found.changes) > 10
    yield from (
        ("", f"<details><summary>{count(len(found.changes), 'change')}</summary>", "")
        if folded
        else ("",)
    )
    yield from ("| | configuration | before → after |", "| --- | --- | --- |")
    yield from (
        f"| **{c.kind}** | {_cell(c.label)} | {_cell(_figures(c))} |" for c in found.changes
    )
    yield from ("", "</details>") if folded else ()


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _name(run: MeasuredRun) -> str:
    return f"{run.run.name or run.folder.name} ({run.hardware})"


def _counts(found: Comparison) -> str:
    kinds = [c.kind for c in found.changes]
    parts = [f"{count(found.matched, 'configuration')} compared"]
    parts += [f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)]
    parts += [f"{found.unsteady} too unsteady for their speed to be judged"] * (found.unsteady > 0)
    parts += [f"{found.other_hosts} paced in part by unlike hosts and not judged by speed"] * (
        found.other_hosts > 0
    )
    parts += ["losses not compared, their training being of another seed or length"] * (
        not found.losses_compared
    )
    parts += [f"{found.only_before} not tried again"] * (found.only_before > 0)
    parts += [f"{found.only_after} new"] * (found.only_after > 0)
    return ", ".join(parts)


def _shift(shift: Shift) -> str:
    verdict = (
        ("everything got slower" if shift.ratio < 1 else "everything got faster")
        if shift.is_real
        else "no change"
    )
    interval = f"{100 * (shift.low - 1):+.1f} % to {100 * (shift.high - 1):+.1f} %"
    return f"median of {shift.rows} steady rows: {100 * (shift.ratio - 1):+.1f} % ({interval}): {verdict}"


def _figures(c: Change) -> str:
    if c.before is None or c.after is None or c.ratio is None:
        return c.text
    figures = (
        f"{number(v)} samples/s" if c.kind in _SPEED else memory(v) for v in (c.before, c.after)
    )
    margin = "" if c.margin is None else f", chance explains ±{100 * c.margin:.1f} %"
    return f"{' → '.join(figures)} ({_percent(c.ratio)}{margin})"


def _percent(ratio: float) -> str:
    return change(ratio) if ratio >= 2 else f"{100 * (ratio - 1):+.1f} %".replace("-", "−")
