"""Every training technique as a row of data, one file per axis.

A technique is a ``Variant`` on an ``Axis``. To add a technique, add its row. To add an axis, add
its file to ``AXES``, which is in the order of merging.
"""

from jobs.techniques.axes.activations import ACTIVATIONS
from jobs.techniques.axes.adapter import ADAPTER
from jobs.techniques.axes.attention import ATTENTION
from jobs.techniques.axes.batch import ACCUMULATION, MICRO_BATCH, SEQUENCE_LENGTH
from jobs.techniques.axes.batching import BATCHING
from jobs.techniques.axes.compile import COMPILE
from jobs.techniques.axes.dataloader import DATALOADER
from jobs.techniques.axes.loop import LOOP
from jobs.techniques.axes.offload import OFFLOAD
from jobs.techniques.axes.optimizer import OPTIMIZER
from jobs.techniques.axes.precision import PRECISION
from jobs.techniques.base import Axis, NumericalEffect, Variant, deep_merge, merge

# Later axes win where two set the same argument.
AXES: dict[str, Axis] = {
    axis.name: axis
    for axis in (
        MICRO_BATCH,
        ACCUMULATION,
        SEQUENCE_LENGTH,
        BATCHING,
        PRECISION,
        OPTIMIZER,
        ACTIVATIONS,
        ATTENTION,
        OFFLOAD,
        ADAPTER,
        COMPILE,
        DATALOADER,
        LOOP,
    )
}

__all__ = ["AXES", "Axis", "NumericalEffect", "Variant", "deep_merge", "merge"]
