"""What only all trials of a batch-size search together say: wrong losses, better batches near."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from jobs.flags import LOSS, flags_of
from jobs.record import TrialRecord
from orchestrator.analysis.batch_size import BatchMeasurement, BatchSizeAnswer
from orchestrator.analysis.dataset import Dataset, dataset_of_records
from orchestrator.analysis.recommendation import Constraints, NearbyBatch
from orchestrator.storage.run_metadata import RunMetadata


def advised(answer: BatchSizeAnswer, records: Sequence[TrialRecord]) -> BatchSizeAnswer:
    """An answer with its sizes' losses checked, and with what is faster near the batch asked for.

    The losses of a size are compared with those of the same search at other splits of the batch.
    """
    dataset = dataset_of_records(records, RunMetadata())
    sizes = [_checked(size, dataset) for size in answer.sizes]
    checked = replace(answer, sizes=tuple(sizes))
    return replace(checked, nearby=_nearby(checked, dataset))


def _checked(size: BatchMeasurement, dataset: Dataset) -> BatchMeasurement:
    """A size with the flags of its row that are about losses."""
    flags = list(size.flags)
    for row in dataset.rows:
        if row["trial_id"] == size.trial_id:
            flags += [flag for flag in flags_of(row) if flag.kind in LOSS]
    return replace(size, flags=tuple(dict.fromkeys(flags)))


def _nearby(answer: BatchSizeAnswer, dataset: Dataset) -> tuple[NearbyBatch, ...]:
    """Better effective batches, as the recommendation from these trials has them."""
    if answer.effective_batch is None or dataset.main is None:
        return ()
    # The tightest limit of all sizes: other processes may have come and gone meanwhile.
    limit = min((size.limit_bytes for size in answer.sizes), default=math.inf)
    memory_bytes = None
    if math.isfinite(limit):
        memory_bytes = int(limit)
    constraints = Constraints(memory_bytes=memory_bytes, effective_batch=answer.effective_batch)
    return dataset.main.recommend(constraints).nearby
