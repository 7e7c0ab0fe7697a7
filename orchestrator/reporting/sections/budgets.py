"""The fastest configuration in each memory budget, and whether a cap check verified it."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from orchestrator.analysis.budget_picks import BudgetPick
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.follow_up_results import decisive_check
from orchestrator.reporting.configurations import (
    BUDGET,
    MEMORY,
    SPEEDS,
    WHICH,
    check_to_json,
    labels_of_trials,
    mark_notes,
    row_of,
    tie_break_sentence,
    wrong_parts,
)
from orchestrator.reporting.content import Column, Content, Format, Row, Table
from orchestrator.units import count, memory, number

INFERRED = "inferred"
UNDER_CAP = Column(key="under_cap", heading="under cap", format=Format.NUMBER)


def make(dataset: Dataset, results: EnvironmentResults) -> Content | None:
    """A row for each budget, followed by a row if another training recipe is faster."""
    rows = [row for pick in results.budget_picks for row in _rows(dataset, results, pick)]
    if not rows:
        return None
    columns = (BUDGET, *SPEEDS, MEMORY, UNDER_CAP, *WHICH)
    notes = list(mark_notes(results, results.picks))
    for pick in results.budget_picks:
        labels = labels_of_trials(dataset, pick.contenders)
        notes += [tie_break_sentence(comparison, labels) for comparison in pick.comparisons]
    is_inferred = any(row.get("under_cap") == INFERRED for row in rows)
    notes += _cap_notes(dataset, results, is_inferred=is_inferred)
    notes += _left_out_notes(dataset, results)
    return Content(
        title="Fastest in each memory budget",
        text=("The fastest configuration of the ranked training recipe, at any batch size.",),
        tables=(Table(columns=columns, rows=tuple(rows)),),
        # Two budgets with the same contenders have the same tie-break, which is shown once.
        notes=tuple(dict.fromkeys(notes)),
    )


def _left_out_notes(dataset: Dataset, results: EnvironmentResults) -> Iterator[str]:
    for pick in results.budget_picks:
        for fastest in pick.left_out[:1]:
            left_out = count(len(pick.left_out), "faster configuration")
            wrong = wrong_parts(pick.left_out)
            yield (
                f"{memory(pick.budget_bytes)}: {left_out} left out, whose {wrong} do not "
                f"match the reference; the fastest is {dataset.pick_label(fastest)} with "
                f"{number(fastest.samples_per_second)} samples/s."
            )


def _rows(dataset: Dataset, results: EnvironmentResults, pick: BudgetPick) -> Iterator[Row]:
    best: Row = {"configuration": "nothing measured fits", "trial_id": None}
    if pick.best is not None:
        compared = list(map(dataclasses.asdict, pick.comparisons))
        best = {**_row(dataset, results, pick, pick.best), "tie_breaks": compared}
    about = {"budget_bytes": pick.budget_bytes}
    yield {**about, "role": "best", "budget": pick.budget_bytes, **best}
    if pick.other is not None:
        other = _row(dataset, results, pick, pick.other)
        yield {**about, "role": "other recipe", "budget": None, **other}


def _row(
    dataset: Dataset, results: EnvironmentResults, pick: BudgetPick, configuration: Configuration
) -> dict[str, Any]:
    # A cap check is evidence for this budget, or for one that includes it.
    check = decisive_check(results.cap_checks, configuration.trial_ids, pick.budget_bytes)
    # The speed under a cap, or a word if there is none; None if no pick of the run was checked.
    under_cap: float | str | None = INFERRED if check is None else check.samples_per_second
    if pick.budget_bytes >= results.device_bytes:
        under_cap = "whole GPU"
    return {
        **row_of(dataset, results, configuration),
        "configuration": dataset.pick_label(configuration),
        "under_cap": under_cap if results.cap_checks else None,
        "cap_check": check_to_json(check),
    }


def _cap_notes(
    dataset: Dataset, results: EnvironmentResults, *, is_inferred: bool
) -> Iterator[str]:
    if not results.cap_checks:
        if results.memory_column == "device_peak_bytes":
            yield "No pick was verified under a memory cap: each fits by its uncapped peak."
        return
    yield "Under cap: samples/s when the pick was verified under a memory cap of the budget."
    if is_inferred:
        yield f"“{INFERRED}”: not verified, it fits by its uncapped peak."
    for pick in results.budget_picks:
        for own in pick.failed:
            failed = f"{dataset.label(own.choices)} took {memory(own.memory_bytes)} uncapped"
            yield f"{memory(pick.budget_bytes)}: {failed} and failed its cap check."
    for check in results.cap_checks:
        if not (check.fits or check.fails):
            yield f"{memory(check.budget_bytes)}: a cap check was inconclusive ({check.outcome})."
