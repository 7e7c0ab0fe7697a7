"""Memory of data with rows of unequal length: the longest rows together, after the training."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jobs.spec import TrialSpec
from jobs.trackers import RaggedData, Tracker

if TYPE_CHECKING:
    from jobs.loops.contract import Trained
    from jobs.trial.data.row_lengths import RowLengths


def train_worst_batch(
    trained: Trained,
    lengths: RowLengths,
    trackers: Sequence[Tracker],
    spec: TrialSpec,
    *,
    is_padded: bool = True,
) -> None:
    """Train one more optimizer step, on the rows that take the most memory; it may fail."""
    from jobs.loops.meter import WorstStep

    tracker = _tracker(trackers)
    tracker.describe(
        longest=int(lengths.tokens.max()),
        mean=lengths.mean_tokens,
        padding_share=_padding_share(trained, lengths) if is_padded else 0.0,
    )
    rows = lengths.worst_micro_batches(spec.micro_batch, spec.accumulation)
    if len(rows) == spec.accumulation:
        # Accelerate fetches one more micro-batch ahead, whose tensors are on the device, too.
        rows.append(rows[0])
    trained.train_rows(rows, WorstStep(tracker))


def with_worst_batch(values: Mapping[str, Any], trackers: Sequence[Tracker]) -> dict[str, Any]:
    """On a CPU, the peaks with and without the worst batch; otherwise ``values`` as they are."""
    worst = _tracker(trackers).cpu_step_peak_bytes()
    typical = values.get("cpu_step_peak_bytes")
    if worst is None or typical is None:
        return dict(values)
    changed = {**values, "cpu_step_peak_bytes": max(worst, typical)}
    if "persistent_bytes" in values:
        # As for peak_allocated_bytes: what lives between steps, and what one step adds.
        changed["typical_peak_allocated_bytes"] = values["persistent_bytes"] + typical
    return changed


def _tracker(trackers: Sequence[Tracker]) -> RaggedData:
    return next(tracker for tracker in trackers if isinstance(tracker, RaggedData))


def _padding_share(trained: Trained, lengths: RowLengths) -> float:
    """The share of padding in the batches that the training's own sampler draws."""
    import torch

    # Drawing an order must not change the random numbers of what may follow.
    with torch.random.fork_rng(devices=[]):
        # Some thousand batches of an epoch are enough.
        batches = itertools.islice(trained.dataloader.batch_sampler, 2_000)
        return lengths.padding_share(batches)
