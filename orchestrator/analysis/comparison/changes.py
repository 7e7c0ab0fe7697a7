"""Changes of outcome, memory and losses of configurations that two runs share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from jobs.record import Outcome
from orchestrator.analysis.comparison.matching import Pair, Result
from orchestrator.analysis.comparison.result import Change, ChangeKind
from orchestrator.analysis.comparison.run_differences import VERSIONS, differences
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.loss_parity import ROUNDING, loss_windows, mismatch_ratio
from orchestrator.storage.tables.rows import Row

TOLERANCES: Mapping[str, float] = {
    "peak_allocated_bytes": 0.005,
    "device_peak_bytes": 0.01,
    "host_peak_resident_bytes": 0.05,
}
"""Memory column -> the largest relative difference that is no change; the most repeatable first.

Allocated bytes are equal in repeats. The peak of the whole GPU and that of a process vary more.
"""


def outcome_changes(
    before: Dataset, after: Dataset, results: Iterable[tuple[Result, Result]]
) -> Iterator[Change]:
    """A "regressed" or "fixed" for each configuration that ended ok in one run only."""
    for earlier, later in results:
        if isinstance(earlier, Configuration) and not isinstance(later, Configuration):
            yield _outcome_change("regressed", before.label(earlier.choices), later)
        elif isinstance(later, Configuration) and not isinstance(earlier, Configuration):
            yield _outcome_change("fixed", after.label(later.choices), earlier)


def _outcome_change(kind: ChangeKind, label: str, row: Row) -> Change:
    outcome = Outcome(row["outcome"])
    return Change(kind=kind, label=label, outcome=outcome, reason=row["reason"] or "")


def memory_changes(before: Dataset, pairs: Iterable[Pair]) -> Iterator[Change]:
    """Changes of memory, read from the first column of ``TOLERANCES`` that both rows have."""
    for earlier, later in pairs:
        shared = [each for each in TOLERANCES if earlier.row.get(each) and later.row.get(each)]
        for column in shared[:1]:
            ratio = later.row[column] / earlier.row[column]
            if abs(ratio - 1) > TOLERANCES[column]:
                yield Change(
                    kind="more memory" if ratio > 1 else "less memory",
                    label=before.label(earlier.choices),
                    before=earlier.row[column],
                    after=later.row[column],
                    ratio=ratio,
                    margin=TOLERANCES[column],
                )


def loss_changes(
    before: Dataset, after: Dataset, pairs: Iterable[Pair], *, same_schedule: bool
) -> Iterator[Change]:
    """Loss mismatches between two runs.

    With equal versions, a mismatch is a difference larger than rounding. With other versions, it is
    larger than chance explains. ``same_schedule`` is False if the seed or the length of the
    training differs. Then only losses that are no longer finite are reported.
    """
    same_versions = not any(differences(before, after, VERSIONS))
    for earlier, later in pairs:
        old_losses = before.losses.get(earlier.trial_ids[0], ())
        new_losses = after.losses.get(later.trial_ids[0], ())
        if not old_losses or not new_losses or not _are_finite(old_losses):
            continue
        ratio = None
        if same_schedule and _are_finite(new_losses):
            # Equal versions draw the same random numbers, so losses may differ by rounding only.
            precision = str(earlier.choices.get("precision", "fp32"))
            rounding = ROUNDING.get(precision, 0.0) if same_versions else None
            ratio = mismatch_ratio(loss_windows(new_losses, old_losses, rounding, 0.0))
        # A changed loss is always reported, so its size is no ``ratio`` to compare with a
        # tolerance.
        if ratio is not None or not _are_finite(new_losses):
            yield Change(kind="loss mismatch", label=before.label(earlier.choices), after=ratio)


def _are_finite(losses: Sequence[float]) -> bool:
    return all(map(math.isfinite, losses))
