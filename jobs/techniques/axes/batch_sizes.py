"""Batch axes: micro-batch size, gradient accumulation, and the length of a sample.

``effective_batch`` is not an axis here: the plan computes the accumulation from it.
"""

from jobs.techniques.variant import Axis, Variant, add

BATCH_AXES = ("micro_batch", "accumulation")
"""Their product is the effective batch of a GPU."""

add(
    Axis(
        name="micro_batch",
        doc="Samples per forward pass",
        default=8,
        integer_argument="per_device_train_batch_size",
    ),
    Axis(
        name="accumulation",
        doc="Forward passes per optimizer step",
        default=1,
        integer_argument="gradient_accumulation_steps",
    ),
    Axis(
        name="sequence_length",
        doc="Tokens of a sample; longer rows of a data file are cut",
        default="data",
        variants={"data": Variant(doc="The length in the section `data`")},
        integer_unit="tokens",
    ),
)
