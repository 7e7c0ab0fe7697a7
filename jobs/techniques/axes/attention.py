"""Attention axis: which implementation computes attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobs.spec import Hook
from jobs.techniques.base import Axis, Variant
from jobs.techniques.hooks import hook

_UNMASKED = Hook("without_full_masks")


def _single_kernel(kernel: str, description: str, traits: tuple[str, ...] = ()) -> Variant:
    return Variant(
        doc=f"scaled_dot_product_attention restricted to {description}; no mask where no sample "
        "is padded",
        model_kwargs={"attn_implementation": "sdpa"},
        hooks={
            "collator": _UNMASKED,
            "kernels": Hook("only_kernel", {"kernel": kernel}),
        },
        requires=("cuda",),
        numerical_effect="rounding",
        traits=traits,
    )


def _flash(name: str, doc: str, *requires: str) -> Variant:
    """A variant of FlashAttention by the name that transformers has for it."""
    return Variant(
        doc=doc,
        model_kwargs={"attn_implementation": name},
        requires=requires,
        numerical_effect="rounding",
        traits=("half_precision_only",),
    )


ATTENTION = Axis(
    name="attention",
    doc="Which implementation computes attention",
    default="auto",
    variants={
        "auto": Variant(doc="The architecture's own default: sdpa if it supports that"),
        "unmasked": Variant(
            doc="The architecture's own default; no mask where no sample is padded, because even "
            "an empty mask keeps compiled code from the fused attention kernels",
            hooks={"collator": _UNMASKED},
            numerical_effect="rounding",
        ),
        "sdpa": Variant(
            doc="PyTorch's scaled_dot_product_attention, which chooses the kernel itself",
            model_kwargs={"attn_implementation": "sdpa"},
        ),
        # One kernel each: a configuration that the kernel cannot compute fails instead of falling
        # back to another.
        "sdpa_flash": _single_kernel(
            "flash", "PyTorch's FlashAttention-2 kernel", traits=("maskless_kernel",)
        ),
        "sdpa_cudnn": _single_kernel("cudnn", "cuDNN's fused attention kernel"),
        "sdpa_efficient": _single_kernel("mem_efficient", "the memory-efficient kernel"),
        "eager": Variant(
            doc="Attention as separate operators: keeps the score matrix, whose memory grows with "
            "the square of the sequence length",
            model_kwargs={"attn_implementation": "eager"},
            numerical_effect="rounding",
        ),
        "flash_attention_2": Variant(
            doc="The kernels of the flash-attn package; needs a 16-bit precision",
            model_kwargs={"attn_implementation": "flash_attention_2"},
            requires=("package:flash_attn", "capability>=8.0"),
            numerical_effect="rounding",
            traits=("half_precision_only",),
        ),
        "flash_attention_3": _flash(
            "flash_attention_3",
            "FlashAttention-3 for Hopper GPUs, of the package flash_attn_interface; needs a 16-bit "
            "precision",
            "package:flash_attn_interface",
            "capability>=9.0",
        ),
        "hub_flash_attention_2": _flash(
            "kernels-community/flash-attn2",
            "FlashAttention-2 as a kernel of the Hub, which is downloaded; needs a 16-bit "
            "precision",
            "hub_kernel:kernels-community/flash-attn2",
            "capability>=8.0",
        ),
        "hub_flash_attention_3": _flash(
            "kernels-community/vllm-flash-attn3",
            "FlashAttention-3 for Hopper GPUs as a kernel of the Hub, which is downloaded; needs a "
            "16-bit precision",
            "hub_kernel:kernels-community/vllm-flash-attn3",
            "capability>=9.0",
        ),
        "flex_attention": Variant(
            doc="PyTorch's flex_attention, which is compiled at the first step",
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
    """``collate``, but without masks that consist of ones: attention means the same without them.

    When a step is traced, transformers 5.17 makes such a mask itself where there is none. This
    function turns that off for the process.
    """
    from transformers import masking_utils

    make_mask = masking_utils.sdpa_mask

    def sdpa_mask(**arguments: Any) -> Any:
        has_mask = arguments.get("attention_mask") is not None
        is_local = arguments.get("local_size") is not None
        may_skip = arguments.get("allow_is_bidirectional_skip")
        if may_skip and not has_mask and not is_local:
            return None
        return make_mask(**arguments)

    masking_utils.AttentionMaskInterface.register("sdpa", sdpa_mask)

    def collated(features: list[Any]) -> dict[str, Any]:
        batch = collate(features)
        for name in ("attention_mask", "decoder_attention_mask"):
            if name in batch and batch[name].all():
                del batch[name]
        return batch

    return collated


@hook("only_kernel")
def only_kernel(*, kernel: str) -> None:
    """Leave scaled_dot_product_attention one kernel: "flash", "cudnn" or "mem_efficient".

    Attention that this kernel cannot compute raises RuntimeError.
    """
    import torch

    # Compiled code has the kernel built in: without a tag a cache could return code for another.
    torch.compiler.config.cache_key_tag = kernel
    for name in ("flash", "cudnn", "mem_efficient", "math"):
        enable = getattr(torch.backends.cuda, f"enable_{name}_sdp")
        enable(name == kernel)
