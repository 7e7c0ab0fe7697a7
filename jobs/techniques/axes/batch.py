"""Batch axes: micro-batch size and gradient accumulation. ``effective_batch`` is solved for in the plan."""

from jobs.techniques.base import Axis

MICRO_BATCH = Axis(
    name="micro_batch",
    doc="samples per forward pass:",
    default=8,
    integer_argument="per_device_train_batch_size",
)
ACCUMULATION = Axis(
    name="accumulation",
    doc="forward passes per optimizer step:",
    default=1,
    integer_argument="gradient_accumulation_steps",
)
