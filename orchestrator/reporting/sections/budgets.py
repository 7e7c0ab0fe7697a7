"""The fastest configuration in each memory budget, and whether a cap check verified it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from orchestrator.analysis.budgets import BudgetPick
from orchestrator.analysis.cap_checks import CapCheck
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.reporting.configurations import (
    CONFIGURATION,
    ERROR95,
    LOSSES,
    MEMORY,
    SPEED,
    TOKENS,
    TRIAL,
    check_to_json,
    labels_of_trials,
    mark_notes,
    row_of,
    tie_break_sentence,
)
from orchestrator.reporting.content import Column, Content, EnvironmentSection, Format, Row, Table
from orchestrator.units import count, memory, number

INFERRED = "inferred"
NO_CAP_NEEDED = "whole GPU"
BUDGET = Column(key="budget", heading="budget", format=Format.MEMORY)
UNDER_CAP = Column(key="under_cap", heading="under cap", format=Format.NUMBER)


def make(dataset: Dataset, results: EnvironmentResults) -> Content | None:
    """A row for each budget, followed by a row if another training recipe is faster."""
    rows: list[Row] = []
    for pick in results.budget_picks:
        rows += _rows(dataset, results, pick)
    if not rows:
        return None
    columns = (BUDGET, SPEED, ERROR95, TOKENS, MEMORY, UNDER_CAP, CONFIGURATION, LOSSES, TRIAL)
    # Two budgets with the same contenders have the same tie-break, which is shown once.
    notes = dict.fromkeys([*mark_notes(results, results.picks), *_tie_breaks(dataset, results)])
    return Content(
        title="Fastest in each memory budget",
        text=("The fastest configuration of the ranked training recipe, at any batch size.",),
        tables=(Table(columns=columns, rows=tuple(rows)),),
        notes=(*notes, *_cap_notes(dataset, results), *_left_out_notes(dataset, results)),
    )


def _rows(dataset: Dataset, results: EnvironmentResults, pick: BudgetPick) -> Iterator[Row]:
    about = {"budget_bytes": pick.budget_bytes}
    if pick.best is None:
        nothing = {"configuration": "nothing measured fits", "trial_id": None}
        yield {**about, "role": "best", "budget": pick.budget_bytes, **nothing}
    else:
        best = _row(dataset, results, pick, pick.best)
        compared = list(map(dataclasses.asdict, pick.comparisons))
        yield {**about, "role": "best", "budget": pick.budget_bytes, **best, "tie_breaks": compared}
    if pick.other is not None:
        other = _row(dataset, results, pick, pick.other)
        yield {**about, "role": "other recipe", "budget": None, **other}


def _row(
    dataset: Dataset, results: EnvironmentResults, pick: BudgetPick, configuration: Configuration
) -> dict[str, Any]:
    # A cap check is evidence for this budget, or for one that includes it.
    check = pick.check_of(configuration)
    return {
        **row_of(dataset, results, configuration),
        "configuration": dataset.pick_label(configuration),
        "under_cap": _under_cap(results, pick, check),
        "cap_check": check_to_json(check),
    }


def _under_cap(
    results: EnvironmentResults, pick: BudgetPick, check: CapCheck | None
) -> float | str | None:
    """The speed under a cap, or a word if there is none; None if no pick of the run was checked."""
    if not pick.checks:
        return None
    if pick.budget_bytes >= results.device_bytes:
        return NO_CAP_NEEDED
    if check is None:
        return INFERRED
    return check.samples_per_second


def _is_inferred(results: EnvironmentResults, pick: BudgetPick) -> bool:
    """Whether a pick of this budget was not verified, although it should be."""
    for configuration in (pick.best, pick.other):
        if configuration is None:
            continue
        if _under_cap(results, pick, pick.check_of(configuration)) == INFERRED:
            return True
    return False


def _tie_breaks(dataset: Dataset, results: EnvironmentResults) -> Iterator[str]:
    for pick in results.budget_picks:
        labels = labels_of_trials(dataset, pick.contenders)
        for comparison in pick.comparisons:
            yield tie_break_sentence(comparison, labels)


def _cap_notes(dataset: Dataset, results: EnvironmentResults) -> Iterator[str]:
    """Notes about the cap checks: which picks were verified, and which failed."""
    if not results.cap_checks:
        if results.memory_column == "device_peak_bytes":
            yield "No pick was verified under a memory cap: each fits by its uncapped peak."
        return
    yield "Under cap: samples/s when the pick was verified under a memory cap of the budget."
    if any(_is_inferred(results, pick) for pick in results.budget_picks):
        yield f"“{INFERRED}”: not verified, it fits by its uncapped peak."
    for pick in results.budget_picks:
        for configuration in pick.failed:
            label = dataset.label(configuration.choices)
            peak = memory(configuration.memory_bytes)
            budget = memory(pick.budget_bytes)
            yield f"{budget}: {label} took {peak} uncapped and failed its cap check."
    for check in results.cap_checks:
        if not (check.fits or check.fails):
            yield f"{memory(check.budget_bytes)}: a cap check was inconclusive ({check.outcome})."


def _left_out_notes(dataset: Dataset, results: EnvironmentResults) -> Iterator[str]:
    """Notes about configurations that are faster, but whose losses do not match their reference."""
    for pick in results.budget_picks:
        if pick.left_out:
            fastest = pick.left_out[0]
            number_left_out = count(len(pick.left_out), "faster configuration")
            yield (
                f"{memory(pick.budget_bytes)}: {number_left_out} left out, whose losses do not "
                f"match the reference; the fastest is {dataset.pick_label(fastest)} with "
                f"{number(fastest.samples_per_second)} samples/s."
            )


SECTION = EnvironmentSection(name="budgets", make=make, terminal_rows=24)
