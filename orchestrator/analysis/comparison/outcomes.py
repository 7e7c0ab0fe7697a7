"""Changes of outcome: configurations that ended ok in one run only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jobs.record import Outcome
from orchestrator.analysis.comparison.changes import Change, ChangeKind
from orchestrator.analysis.comparison.pairs import Result
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset
from orchestrator.storage.tables.rows import Row


def outcome_changes(
    before: Dataset, after: Dataset, results: Iterable[tuple[Result, Result]]
) -> Iterator[Change]:
    """A "regressed" or "fixed" for each configuration that ended ok in one run only."""
    for earlier, later in results:
        if isinstance(earlier, Configuration) and not isinstance(later, Configuration):
            yield _change("regressed", before.label(earlier.choices), later)
        elif isinstance(later, Configuration) and not isinstance(earlier, Configuration):
            yield _change("fixed", after.label(later.choices), earlier)


def _change(kind: ChangeKind, label: str, row: Row) -> Change:
    outcome = Outcome(row["outcome"])
    return Change(kind=kind, label=label, outcome=outcome, reason=row["reason"] or "")
