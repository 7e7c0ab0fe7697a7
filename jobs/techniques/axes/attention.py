"""Attention axis: which implementation computes attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobs.spec import Hook
from jobs.techniques.base import Axis, Variant
from jobs.techniques.hooks import hook

_UNMASKED = Hook("without_full_masks")


def _one_kernel(kernel: str, name: str) -> Variant:
    return Variant(
        doc=f"scaled_dot_product_attention with {name} and no other kernel, and no mask where no sample is padded",
        model_kwargs={"attn_implementation": "sdpa"},
        hooks={
            "collator": _UNMASKED,
            "kernels": Hook("only_kernel", {"kernel": kernel}),
        },
        requires=("cuda",),
        numerical_effect="rounding",
    )


ATTENTION = Axis(
    name="attention",
    doc="which implementation computes attention",
    default="auto",
    variants={
        "auto": Variant(doc="the architecture's own preference: sdpa where it has it"),
        "unmasked": Variant(
            doc="the architecture's own preference, and no mask where no sample is padded: a mask that masks nothing "
            "keeps a compiled step from the fused kernels",
            hooks={"collator": _UNMASKED},
            numerical_effect="rounding",
        ),
        "sdpa": Variant(
            doc="PyTorch's scaled_dot_product_attention, which picks a kernel itself",
            model_kwargs={"attn_implementation": "sdpa"},
        ),
        "sdpa_flash": _one_kernel("flash", "PyTorch's own FlashAttention-2"),
        "sdpa_cudnn": _one_kernel("cudnn", "cuDNN's fused attention"),
        "sdpa_efficient": _one_kernel("mem_efficient", "the memory-efficient kernel"),
        "eager": Variant(
            doc="attention written out, the score matrix kept in memory",
            model_kwargs={"attn_implementation": "eager"},
            numerical_effect="rounding",
        ),
        "flash_attention_2": Variant(
            doc="the flash-attn package's kernels",
            model_kwargs={"attn_implementation": "flash_attention_2"},
            requires=("package:flash_attn", "capability>=8.0"),
            numerical_effect="rounding",
            traits=("half_precision_only",),
        ),
        "flex_attention": Variant(
            doc="PyTorch's flex_attention, compiled",
            model_kwargs={"attn_implementation": "flex_attention"},
            requires=("cuda", "no_attention_dropout"),
            numerical_effect="rounding",
        ),
    },
)


@hook("without_full_masks")
def without_full_masks(
    collate: Callable[[list[Any]], dict[str, Any]],
) -> Callable[[list[Any]], dict[str, Any]]:
    """``collate``, but masks of ones alone are left out of its batches: attention means the same without them.

    Where a step is traced, transformers 5.17 makes such a mask itself of none; here it does so no longer.
    """
    from transformers import masking_utils

    make = masking_utils.sdpa_mask

    def sdpa_mask(**given: Any) -> Any:
        masks_nothing = given.get("attention_mask") is None and given.get("local_size") is None
        return None if masks_nothing and given.get("allow_is_bidirectional_skip") else make(**given)

    masking_utils.AttentionMaskInterface.register("sdpa", sdpa_mask)

    def collated(features: list[Any]) -> dict[str, Any]:
        batch = collate(features)
        full = [
            name
            for name in ("attention_mask", "decoder_attention_mask")
            if name in batch and batch[name].all()
        ]
        for name in full:
            del batch[name]
        return batch

    return collated


@hook("only_kernel")
def only_kernel(*, kernel: str) -> None:
    """Leave scaled_dot_product_attention one kernel ("flash", "cudnn", "mem_efficient"), or an error without it."""
    import torch

    torch.compiler.config.cache_key_tag = (
        kernel  # compiled code found in a cache would bring its own choice
    )
    for one in ("flash", "cudnn", "mem_efficient", "math"):
        getattr(torch.backends.cuda, f"enable_{one}_sdp")(one == kernel)
