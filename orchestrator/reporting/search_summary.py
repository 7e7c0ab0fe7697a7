"""What a run and its search say of themselves, in sentences: how far they are, what was left out and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jobs.record import Outcome
from orchestrator.analysis.summary import Summary
from orchestrator.units import count


def standing(summary: Summary) -> list[str]:
    """How far the run is, in a sentence; none where it has finished."""
    run = summary.run
    if run.finished:
        return []
    # What was ruled out when the sweep was planned has its row from the beginning.
    ruled_out = sum(
        row["outcome"] == Outcome.UNSUPPORTED and row["started_at"] is None for row in summary.rows
    )
    ended = len(summary.rows) - ruled_out
    so_far = f"{ended} of {count(run.planned, 'trial')}" if run.planned else count(ended, "trial")
    return [f"unfinished: {so_far} so far, and what is said here may change."]


def account(search: Mapping[str, Any]) -> list[str]:
    """Sentences from ``Run.search``; none where it is empty."""
    return list(_account(search))


def _account(search: Mapping[str, Any]) -> Iterator[str]:
    if not search:
        return
    skipped: Mapping[str, int] = search["skipped"]
    rules = ", ".join(f"{trials} {rule}" for rule, trials in skipped.items())
    trials = f"{search['measured']} of {count(search['planned'], 'trial')}"
    left_out = f"{sum(skipped.values())}{f' ({rules})' if rules else ''}"
    yield f"search: {search['kind']} measured {trials} and left out {left_out}."
    if not skipped or (audit := search.get("audit")) is None:
        return
    if not audit["audited"]:
        yield "None of what it left out was measured all the same: how far off it was is not known."
        return
    yield (
        f"{count(audit['audited'], 'configuration')} that it would have left out, drawn by its seed, "
        f"{'was' if audit['audited'] == 1 else 'were'} measured all the same: {_contradictions(audit)}"
        f"{''.join(_off(name, audit[f'{name}_error']) for name in ('memory', 'speed'))}."
    )


def _contradictions(audit: Mapping[str, Any]) -> str:
    return f"{audit['contradicted'] or 'none'} belonged on the frontier beyond {100 * audit['tolerance']:g} %"


def _off(name: str, error: Mapping[str, float] | None) -> str:
    if error is None:
        return ""
    return f"; {name} was off its likeliest value by {error['median']:.1%} (median), at most {error['largest']:.1%}"
