"""Memory of data with rows of unequal length: the longest rows together, after the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jobs.spec import TrialSpec
from jobs.trackers import RaggedData, Tracker

if TYPE_CHECKING:
    from jobs.loops.contract import Trained
    from jobs.trial.data.row_lengths import RowLengths


def train_worst_batch(
    trained: Trained, lengths: RowLengths, trackers: Sequence[Tracker], spec: TrialSpec
) -> None:
    """Train one more optimizer step, on the rows that take the most memory; it may fail."""
    from jobs.loops.meter import WorstStep

    rows = lengths.worst_micro_batches(spec.micro_batch, spec.accumulation)
    if len(rows) == spec.accumulation:
        # Accelerate fetches one more micro-batch ahead, whose tensors are on the device, too.
        rows.append(rows[0])
    trained.train_rows(rows, WorstStep(trackers))


def with_worst_batch(values: Mapping[str, Any], trackers: Sequence[Tracker]) -> dict[str, Any]:
    """On a CPU, the peaks with and without the worst batch; otherwise ``values`` as they are."""
    worst = RaggedData.among(trackers).cpu_step_peak_bytes()
    typical = values.get("cpu_step_peak_bytes")
    if worst is None or typical is None:
        return dict(values)
    changed = {**values, "cpu_step_peak_bytes": max(worst, typical)}
    if "persistent_bytes" in values:
        # As for peak_allocated_bytes: what lives between steps, and what one step adds.
        changed["typical_peak_allocated_bytes"] = values["persistent_bytes"] + typical
    return changed
