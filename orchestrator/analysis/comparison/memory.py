"""Changes of memory beyond what repeats of one configuration differ by."""

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
"""Memory column, the steadiest first -> by how much it may differ, relative.

Allocations repeat to the byte, a process's memory less so.
"""


def memory_changes(before: Dataset, pairs: Iterable[Pair]) -> Iterator[Change]:
    """Changes by the first column of ``TOLERANCES`` that both rows have."""
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
