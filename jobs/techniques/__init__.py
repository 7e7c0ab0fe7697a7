"""Every training technique as a row of data, one file per axis.

A technique is a ``Variant`` on an ``Axis``. To add a technique, add its row to the file of its
axis. To add an axis, add a file, and its axis to ``AXES``.
"""

from jobs.techniques.axes.activations import ACTIVATIONS
from jobs.techniques.axes.allocator import ALLOCATOR
from jobs.techniques.axes.attention import ATTENTION
from jobs.techniques.axes.batches.rows import BATCHING
from jobs.techniques.axes.batches.size import ACCUMULATION, MICRO_BATCH, SEQUENCE_LENGTH
from jobs.techniques.axes.compile import COMPILE
from jobs.techniques.axes.dataloader import DATALOADER
from jobs.techniques.axes.experts import EXPERTS
from jobs.techniques.axes.fine_tuning.adapter import ADAPTER
from jobs.techniques.axes.fine_tuning.base import BASE
from jobs.techniques.axes.fine_tuning.qat import QAT
from jobs.techniques.axes.fine_tuning.trainable import TRAINABLE
from jobs.techniques.axes.fine_tuning.vision import VISION
from jobs.techniques.axes.kernels import KERNELS
from jobs.techniques.axes.loop import LOOP
from jobs.techniques.axes.loss import LOSS
from jobs.techniques.axes.offload import OFFLOAD
from jobs.techniques.axes.optimizer import OPTIMIZER
from jobs.techniques.axes.precision import PRECISION
from jobs.techniques.base import (
    Axis,
    Family,
    NamePattern,
    NumericalEffect,
    Variant,
    deep_merge,
    merge,
)

# Variants are merged in this order: if two set the same argument, the later axis wins.
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
        EXPERTS,
        OFFLOAD,
        KERNELS,
        LOSS,
        ADAPTER,
        BASE,
        VISION,
        TRAINABLE,
        QAT,
        COMPILE,
        ALLOCATOR,
        DATALOADER,
        LOOP,
    )
}

__all__ = [
    "AXES",
    "Axis",
    "Family",
    "NamePattern",
    "NumericalEffect",
    "Variant",
    "deep_merge",
    "merge",
]
