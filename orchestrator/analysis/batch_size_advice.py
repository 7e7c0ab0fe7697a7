"""Two additions to a batch-size answer that need all its trials: loss checks and better batches.

A better batch is a much faster effective batch near the one asked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from jobs.flags import LOSS, flags_of
from jobs.record import TrialRecord
from orchestrator.analysis.batch_size import BatchMeasurement, BatchSizeResult
from orchestrator.analysis.dataset import Dataset, dataset_of_records
from orchestrator.analysis.recommendation import Alternative, Constraints
from orchestrator.storage.run_metadata import RunMetadata


def advised(answer: BatchSizeResult, records: Sequence[TrialRecord]) -> BatchSizeResult:
    """The answer with its losses checked, and with faster effective batches nearby.

    ``records`` are the trials of the search. Their losses are compared with each other.
    """
    dataset = dataset_of_records(records, RunMetadata())
    sizes = [_checked(size, dataset) for size in answer.sizes]
    checked = replace(answer, sizes=tuple(sizes))
    return replace(checked, nearby=_nearby(checked, dataset))


def _checked(size: BatchMeasurement, dataset: Dataset) -> BatchMeasurement:
    """The size with the loss flags that its row in the dataset has."""
    flags = list(size.flags)
    for row in dataset.rows:
        if row["trial_id"] == size.trial_id:
            flags += [flag for flag in flags_of(row) if flag.kind in LOSS]
    return replace(size, flags=tuple(dict.fromkeys(flags)))


def _nearby(answer: BatchSizeResult, dataset: Dataset) -> tuple[Alternative, ...]:
    """Much faster effective batches near the one asked for, if one was asked for."""
    if answer.effective_batch is None or dataset.main is None:
        return ()
    # Limits differ if other processes used the GPU during some trials. The smallest is safe.
    limit = min((size.limit_bytes for size in answer.sizes), default=math.inf)
    memory_bytes = int(limit) if math.isfinite(limit) else None
    constraints = Constraints(memory_bytes=memory_bytes, effective_batch=answer.effective_batch)
    return dataset.main.recommend(constraints).nearby
