"""Every training technique as a row of data, one file an axis; ``AXES`` is their list, in order of merging.

A technique is a ``Variant`` on an ``Axis``. To add one, add its row; to add an axis, add its file here.
"""

from jobs.techniques.activations import ACTIVATIONS
from jobs.techniques.adapter import ADAPTER
from jobs.techniques.attention import ATTENTION
from jobs.techniques.base import Axis, Effect, Variant, deep_merge, merge
from jobs.techniques.batch import ACCUMULATION, MICRO_BATCH
from jobs.techniques.compile import COMPILE
from jobs.techniques.dataloader import DATALOADER
from jobs.techniques.loop import LOOP
from jobs.techniques.offload import OFFLOAD
from jobs.techniques.optimizer import OPTIMIZER
from jobs.techniques.precision import PRECISION

AXES: dict[str, Axis] = {
    axis.name: axis
    for axis in (
        MICRO_BATCH,
        ACCUMULATION,
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

__all__ = ["AXES", "Axis", "Effect", "Variant", "deep_merge", "merge"]
