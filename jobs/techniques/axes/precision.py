"""Precision axis: the number formats of weights and arithmetic."""

from jobs.techniques.base import Axis, Variant

# Every row sets tf32, because torch_compile=True turns TF32 on where tf32 is None.
PRECISION = Axis(
    name="precision",
    doc="Number formats of weights and arithmetic",
    default="fp32",
    variants={
        "fp32": Variant(
            doc="32-bit weights and arithmetic",
            training_arguments={"tf32": False},
        ),
        "tf32": Variant(
            doc="32-bit weights, matrix products on TF32 tensor cores: saves time, no memory",
            training_arguments={"tf32": True},
            requires=("capability>=8.0",),
            numerical_effect="rounding",
        ),
        "fp16": Variant(
            doc="Mixed precision with fp16 autocast and loss scaling: 32-bit weights; saves time "
            "and activation memory",
            training_arguments={"fp16": True, "tf32": False},
            requires=("cuda",),  # accelerate silently trains in fp32 on a CPU
            numerical_effect="rounding",
        ),
        "bf16": Variant(
            doc="Mixed precision with bf16 autocast: 32-bit weights; saves time and activation "
            "memory",
            training_arguments={"bf16": True, "tf32": False},
            requires=("bf16",),
            numerical_effect="rounding",
        ),
        "bf16_weights": Variant(
            doc="Pure bf16: weights, gradients and optimizer states in 16 bits without a 32-bit "
            "copy; saves the most memory, changes the training",
            training_arguments={"bf16": True, "tf32": False},
            model_kwargs={"dtype": "bfloat16"},
            requires=("bf16",),
            numerical_effect="training",
        ),
    },
)
