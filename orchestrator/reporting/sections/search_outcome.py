"""The progress of the run, what its search skipped and what may still be faster, and notes."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from jobs.record import Outcome
from orchestrator.analysis.dataset import Dataset
from orchestrator.reporting.content import Column, Content, Format, Table
from orchestrator.storage.search_summary import BudgetResult, SearchSummary
from orchestrator.units import change, count, memory

_RULES = {
    "cannot_gain": "not likely to be faster",
    "does_not_fit": "predicted not to fit",
    "does_not_run": "with what failed here",
    "out_of_memory_below": "larger than one that ran out of memory",
    "search_time": "left when the GPU time was up",
}
"""Rule of a skipped trial -> its words. Other rules are shown by their names."""
_COLUMNS = (
    Column(key="budget", heading="budget"),
    Column(key="training", heading="training"),
    Column(key="considered", heading="considered", format=Format.COUNT),
    Column(key="ruled_out", heading="ruled out", format=Format.COUNT),
    Column(key="measured", heading="measured", format=Format.COUNT),
    Column(key="open", heading="not measured"),
)


def make(dataset: Dataset) -> Content | None:
    """Sentences that open the report."""
    text = (*progress(dataset), *search_sentences(dataset.run.search_summary), *dataset.run.notes)
    return Content(title="", text=text) if text else None


def results(dataset: Dataset) -> Content | None:
    """A row for each budget and training; None without a search for the fastest."""
    search = dataset.run.search_summary
    if search is None or not search.results:
        return None
    rows = [
        {
            "budget": "any" if own.budget_bytes is None else memory(own.budget_bytes),
            "training": "any" if own.recipe else "the same",
            "considered": own.considered,
            "ruled_out": own.ruled_out,
            "measured": own.measured,
            "open": certainty(own),
        }
        for own in search.results
    ]
    text = "Configurations that the search considered, ruled out without a trial, and measured."
    table = Table(columns=_COLUMNS, rows=tuple(rows))
    return Content(title="Not measured", text=(text,), tables=(table,))


def progress(dataset: Dataset) -> list[str]:
    """A sentence about the progress of an unfinished run; empty if the run has finished."""
    run = dataset.run
    if run.finished:
        return []
    # Trials that the plan ruled out have a row from the beginning, so they are not counted.
    ended = sum(
        row["outcome"] != Outcome.UNSUPPORTED or row["started_at"] is not None
        for row in dataset.rows
    )
    so_far = count(ended, "trial")
    if run.planned and ended >= run.planned:
        return [f"Unfinished run: {so_far} ended, but not all follow-ups; a pick may still change."]
    if run.planned:
        so_far = f"{ended} of {count(run.planned, 'trial')}"
    return [f"Unfinished run: {so_far} so far, so every figure may still change."]


def search_sentences(search: SearchSummary | None) -> Iterator[str]:
    """What the search measured and left out; nothing if it measured everything."""
    if search is None:
        return
    measured = f"{search.measured} of {count(search.planned, 'trial')} measured"
    rules = ", ".join(f"{n:,} {_RULES.get(rule, rule)}" for rule, n in search.skipped.items())
    skipped = f"{sum(search.skipped.values()):,} skipped{f' ({rules})' if rules else ''}"
    yield f"Search ({search.kind}): {measured}, {skipped}."
    if not search.skipped or search.audit is None:
        return
    if search.audit["audited"]:
        yield _audit(search.audit)
    else:
        yield "No skipped configuration was measured as an audit, so the error is unknown."


def counts(result: BudgetResult) -> str:
    """The configurations that were considered, ruled out and measured."""
    return (
        f"considered {result.considered:,}, ruled out without a trial"
        f" {result.ruled_out:,}, measured {result.measured:,}"
    )


def certainty(result: BudgetResult) -> str:
    """The largest possible gain of an unmeasured configuration, with its probability."""
    at_most = result.gain_at_most
    sure = f"{100 * result.confidence:.3g} %"
    # In replays, a search that was cut short kept fewer of its bounds than its model expects.
    unsure = "by the search's model, which was not sure yet"
    promise = f"with {sure} probability" if result.is_settled else unsure
    if result.pick is None:
        if result.is_settled:
            return f"nothing considered fits, with a probability of at least {sure}"
        return "nothing measured fits; whether anything does is not known"
    if at_most is None or not math.isfinite(at_most):
        return "how much faster the unmeasured configurations could be is not known"
    # A gain above 300 % follows from little more than the prior, as while every row is host-bound.
    if at_most > 3:
        return "too little is known: an unmeasured configuration could be several times faster"
    if at_most < 0.0005:
        return f"none of the unmeasured configurations is faster, {promise}"
    most = change(1 + at_most)
    if at_most < 0.1:
        most = f"+{100 * at_most:.1f} %"
    return f"the unmeasured configurations gain at most {most} in speed, {promise}"


def _audit(audit: Mapping[str, Any]) -> str:
    audited = count(audit["audited"], "configuration")
    contradicted = audit["contradicted"]
    verb = "is" if contradicted == 1 else "are"
    # The tolerance is a share of the front's speed at equal memory.
    tolerance = f"{100 * audit['tolerance']:g} %"
    parts = [
        f"Audit: {audited} that it would have skipped, drawn at random, measured all the same; "
        f"{contradicted or 'none'} {verb} beyond the Pareto front by more than {tolerance}"
    ]
    for name in ("memory", "speed"):
        figures = audit[f"{name}_error"]
        if figures is not None:
            median, largest = (f"{100 * figures[each]:.1f} %" for each in ("median", "largest"))
            parts.append(f"{name} prediction off by {median} (median), {largest} at most")
    return "; ".join(parts) + "."
