"""Batch axes: micro-batch size and gradient accumulation.

``effective_batch`` is no axis: the plan solves it for the accumulation.
"""

from jobs.techniques.base import Axis

MICRO_BATCH = Axis(
    name="micro_batch",
    doc="Samples per forward pass",
    default=8,
    integer_argument="per_device_train_batch_size",
)
ACCUMULATION = Axis(
    name="accumulation",
    doc="Forward passes per optimizer step",
    default=1,
    integer_argument="gradient_accumulation_steps",
)
