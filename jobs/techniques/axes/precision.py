"""Precision axis: the number formats that weights are kept in and that the arithmetic runs in."""

from jobs.techniques.base import Axis, Variant

# torch_compile=True turns TF32 on when tf32 is None, so every row says what it wants on GPUs that have TF32;
# elsewhere the argument must stay unset, which jobs.loops takes care of.
PRECISION = Axis(
    name="precision",
    doc="number format of weights and arithmetic",
    default="fp32",
    variants={
        "fp32": Variant(
            doc="32-bit weights and arithmetic",
            training_arguments={"tf32": False},
        ),
        "tf32": Variant(
            doc="32-bit weights, matrix products on TF32 tensor cores",
            training_arguments={"tf32": True},
            requires=("capability>=8.0",),
            numerical_effect="rounding",
        ),
        "fp16": Variant(
            doc="mixed precision: 32-bit weights, fp16 autocast, loss scaling",
            training_arguments={"fp16": True, "tf32": False},
            requires=("cuda",),  # accelerate silently trains in fp32 on a CPU
            numerical_effect="rounding",
        ),
        "bf16": Variant(
            doc="mixed precision: 32-bit weights, bf16 autocast",
            training_arguments={"bf16": True, "tf32": False},
            requires=("bf16",),
            numerical_effect="rounding",
        ),
        "bf16_weights": Variant(
            doc="pure bf16: weights, gradients and optimizer states in 16 bits, no 32-bit copy",
            training_arguments={"bf16": True, "tf32": False},
            model_kwargs={"dtype": "bfloat16"},
            requires=("bf16",),
            numerical_effect="training",
        ),
    },
)
