"""Attention axis: which implementation computes attention."""

from jobs.techniques.base import Axis, Variant

ATTENTION = Axis(
    name="attention",
    doc="which implementation computes attention",
    default="auto",
    variants={
        "auto": Variant(doc="the architecture's own preference: sdpa where it has it"),
        "sdpa": Variant(
            doc="PyTorch's scaled_dot_product_attention, which picks a kernel itself",
            model_kwargs={"attn_implementation": "sdpa"},
        ),
        "eager": Variant(
            doc="attention written out, the score matrix kept in memory",
            model_kwargs={"attn_implementation": "eager"},
            effect="rounding",
        ),
        "flash_attention_2": Variant(
            doc="the flash-attn package's kernels",
            model_kwargs={"attn_implementation": "flash_attention_2"},
            requires=("package:flash_attn", "capability>=8.0"),
            effect="rounding",
            tags=("half_precision_only",),
        ),
        "flex_attention": Variant(
            doc="PyTorch's flex_attention, compiled",
            model_kwargs={"attn_implementation": "flex_attention"},
            requires=("cuda", "no_attention_dropout"),
            effect="rounding",
        ),
    },
)
