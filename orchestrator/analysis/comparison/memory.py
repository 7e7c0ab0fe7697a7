"""Changes of memory that are larger than the differences between repeats of one configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from orchestrator.analysis.comparison.changes import Change
from orchestrator.analysis.comparison.pairs import Pair
from orchestrator.analysis.dataset import Dataset

TOLERANCES: Mapping[str, float] = {
    "peak_allocated_bytes": 0.005,
    "device_peak_bytes": 0.01,
    "host_peak_resident_bytes": 0.05,
}
"""Memory column -> the largest relative difference that is no change; the most repeatable first.

Allocated bytes are equal in repeats. The peak of the whole GPU and that of a process vary more.
"""


def memory_changes(before: Dataset, pairs: Iterable[Pair]) -> Iterator[Change]:
    """Changes of memory, read from the first column of ``TOLERANCES`` that both rows have."""
    for pair in pairs:
        column = _shared_column(pair)
        if column is None:
            continue
        earlier, later = pair
        ratio = later.row[column] / earlier.row[column]
        tolerance = TOLERANCES[column]
        if abs(ratio - 1) > tolerance:
            yield Change(
                kind="more memory" if ratio > 1 else "less memory",
                label=before.label(earlier.choices),
                before=earlier.row[column],
                after=later.row[column],
                ratio=ratio,
                margin=tolerance,
            )


def _shared_column(pair: Pair) -> str | None:
    for column in TOLERANCES:
        if all(own.row.get(column) for own in pair):
            return column
    return None
