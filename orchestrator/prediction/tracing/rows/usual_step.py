"""The kernels of a usual step of an epoch whose rows are of unequal length."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from jobs.spec import TrialSpec
from orchestrator.prediction.streams.affine_stream import MicroBatches, micro_batches_between
from orchestrator.prediction.tracing.rows import epoch_orders
from orchestrator.prediction.tracing.rows.batches import Batches, BatchShapes
from orchestrator.prediction.tracing.rows.epoch_orders import Usual


def usual_micro_batches(
    spec: TrialSpec,
    batches: Batches,
    sizes: Sequence[int],
    traced: Callable[[BatchShapes, int], MicroBatches],
) -> tuple[MicroBatches, Usual]:
    """Micro-batches with the work of a usual one, but for its attention, which sees rows of the
    ``Usual`` length. ``sizes`` are those of the longest rows that are traced anyway.
    """
    ragged = batches.ragged
    assert ragged is not None
    assert ragged.lengths is not None
    usual = epoch_orders.usual(spec, ragged.lengths, ragged.collate)
    if batches.joins_rows:
        # One sequence, of which attention sees all.
        batch = ragged.longest(spec.micro_batch, usual.rows)
        return traced(batch, spec.micro_batch), usual._replace(seen=1.0)
    # Work grows with the positions. A single row has another layout.
    low, high = max(2, sizes[0]), sizes[-1]
    if batches.lengths is not None or high <= low:
        low = max(2, int(usual.rows))
        high = 2 * low
    less, more = (traced(batches.longest(size), size) for size in (low, high))
    found = micro_batches_between(less, more, usual.rows)
    if found is None:
        # Both take other memory, as by tiles of a loss. Then only their times are interpolated.
        share = (usual.rows - low) / (high - low)
        pairs = zip(less, more, strict=True)
        first, later = (
            one and other and replace(one, work=one.work.towards(other.work, share))
            for one, other in pairs
        )
        assert first is not None
        found = first, later
    return found, usual
