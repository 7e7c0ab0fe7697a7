"""The kernels of a usual step of an epoch whose rows are of unequal length."""

from collections.abc import Callable, Sequence

from jobs.spec import TrialSpec
from orchestrator.prediction.affine_stream import MicroBatches
from orchestrator.prediction.time.step_work import PartWork
from orchestrator.prediction.tracing import row_order
from orchestrator.prediction.tracing.batches import Batches, BatchShapes


def usual_parts(
    spec: TrialSpec,
    batches: Batches,
    sizes: Sequence[int],
    traced: Callable[[BatchShapes, int], MicroBatches],
) -> tuple[PartWork, PartWork | None, float, float]:
    """A step's first micro-batch, any later one, the positions of a row, and how many
    shapes of a step are new. ``sizes`` are those of the longest rows that are traced anyway.

    Raises ValueError if micro-batches of two sizes run other kernels.
    """
    assert batches.ragged is not None
    assert batches.ragged.lengths is not None
    rows, seen, new_shapes = row_order.usual(spec, batches.ragged.lengths, batches.ragged.collate)
    positions = batches.longest(1).tokens() * rows / spec.micro_batch
    if batches.joins_rows:
        first, later = traced(batches.ragged.longest(spec.micro_batch, rows), spec.micro_batch)
        return first.work, later.work if later else None, positions, new_shapes
    # Work grows with the positions. A single row has another layout.
    low, high = max(2, sizes[0]), sizes[-1]
    if batches.lengths is not None or high <= low:
        low = max(2, int(rows))
        high = 2 * low
    (first, later), (first_high, later_high) = (
        traced(batches.longest(size), size) for size in (low, high)
    )
    position = (rows - low) / (high - low)
    usual = first.work.towards(first_high.work, position)
    if usual is None:
        raise ValueError("micro-batches of two sizes run other kernels")
    usual_later = None
    if later is not None and later_high is not None:
        usual_later = later.work.towards(later_high.work, position)
    later_work = usual_later and usual_later.seeing(seen)
    return usual.seeing(seen), later_work, positions, new_shapes
