"""An explanation as people read it: a clause for every part of the difference, each with its figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from jobs.spec import to_json as plain
from orchestrator.analysis.explanation import ALIKE, Account, Explanation, Fact, Share
from orchestrator.reporting import loss_curves
from orchestrator.units import change, memory, number

LEAST = 0.02
"""A part is told when it changed by more than this share of the larger figure."""


def render(found: Explanation) -> str:
    """Lines of text: the two trials, why the time is another, why the memory is, what ran otherwise."""
    a, b = found.before, found.after
    lines = [f"A {a.trial_id}: {a.label}", f"B {b.trial_id}: {b.label}", ""]
    lines += [
        f"On {found.hardware} B trains {number(b.samples_per_second)} samples/s where A trains "
        f"{number(a.samples_per_second)} ({change(b.samples_per_second / a.samples_per_second)}), and takes "
        f"{memory(b.memory_bytes)} where A takes {memory(a.memory_bytes)} ({_ratio(found.memory_bytes)}).",
        f"Chosen otherwise: {'; '.join(map(_fact, found.chosen)) or 'nothing'}.",
    ]
    lines += _account("Time", ("faster", "slower"), found.seconds_per_sample, seconds, " a sample")
    if found.module_seconds:
        title = "Forward and backward pass, by class of module"
        lines += _account(title, ("faster", "slower"), found.module_seconds, seconds, " a sample")
    lines += _account("Memory", ("leaner", "fatter"), found.memory_bytes, memory, "")
    if found.facts:
        lines += [
            "",
            "What ran otherwise, B after A:",
            *(f"  {_fact(fact)}" for fact in found.facts),
        ]
    if found.losses:
        lines += ["", *loss_curves.lines(found.losses)]
    if found.cautions:
        lines += ["", *(f"! {caution}" for caution in found.cautions)]
    return "\n".join(lines)


def to_json(found: Explanation) -> dict[str, Any]:
    """The same as plain JSON values, seconds and bytes, with the text."""
    content: dict[str, Any] = plain(found)
    return {**content, "text": render(found)}


def _account(
    title: str, words: tuple[str, str], account: Account, written: Callable[[float], str], each: str
) -> Iterator[str]:
    before, after = account.before, account.after
    source = (
        "from both anatomies"
        if account.source == "anatomy"
        else "from the table's columns: not both taken apart"
    )
    yield ""
    if before and after and abs(after / before - 1) <= ALIKE:
        yield f"{title}: B is as A, {written(after)}{each} ({source})."
    else:
        word = words[after > before]
        figures = f"{written(after)}{each} instead of {written(before)}"
        yield f"{title}: B is {word}, {figures} ({_ratio(account)}; {source})."
    told = [share for share in account.shares if abs(share.change) > LEAST * max(before, after)]
    yield from (f"  {_share(share, account, written)}" for share in told)
    if not account.shares:
        yield "  The table does not tell what for."


def _share(share: Share, account: Account, written: Callable[[float], str]) -> str:
    """``−21.0 ms tensor contractions: 2.10 ms instead of 23.1 ms, 79 % of the difference``."""
    sign = "+" if share.change > 0 else "−"
    figures = f"{sign}{written(abs(share.change))} {share.name}: {written(share.after)} instead of"
    figures = f"{figures} {written(share.before)}"
    whole = account.after - account.before
    if abs(whole) <= ALIKE * max(account.before, account.after):
        return figures
    part = share.change / whole
    return f"{figures}, {f'{100 * part:.0f} % of the difference' if part > 0 else 'against it'}"


def _ratio(account: Account) -> str:
    return change(account.after / account.before) if account.before else "–"


def _fact(fact: Fact) -> str:
    return (
        f"{fact.name} {_figure(fact.after, fact.unit)} instead of {_figure(fact.before, fact.unit)}"
    )


def _figure(value: Any, unit: str) -> str:
    if value is None:
        return "none"
    if unit == "%":
        return f"{100 * value:.0f} %"
    if unit == "s":
        return seconds(value)
    if isinstance(value, float):
        return f"{number(value)}{unit}"
    return str(value) or "none"


def seconds(value: float) -> str:
    """Seconds in the unit that reads best: ``2.90 ms``, ``1.50 s``."""
    value = round(value, 9)
    sign, size = "−" if value < 0 else "", abs(value)
    return f"{sign}{number(size)} s" if size >= 1 else f"{sign}{number(1000 * size)} ms"
