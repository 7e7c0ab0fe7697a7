"""Attention axis: which implementation computes attention."""

from collections.abc import Callable
from typing import Any

from jobs.spec import Hook
from jobs.techniques.hooks import hook
from jobs.techniques.variant import Axis, Variant, add

_UNMASKED = Hook("without_full_masks")


def _single_kernel(kernel: str, description: str, traits: tuple[str, ...] = ()) -> Variant:
    return Variant(
        doc=f"scaled_dot_product_attention restricted to {description}; no mask for batches "
        "without padding",
        model_kwargs={"attn_implementation": "sdpa"},
        hooks={"collator": _UNMASKED, "kernels": Hook("only_kernel", {"kernel": kernel})},
        requires=("cuda",),
        numerical_effect="rounding",
        traits=traits,
    )


def _flash(name: str, doc: str, *requires: str) -> Variant:
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
        "auto": Variant(doc="The architecture's own default: sdpa where it supports that"),
        "unmasked": Variant(
            doc="The architecture's own default, without a mask for batches without padding: with "
            "a mask, compiled code cannot use the fused attention kernels",
            hooks={"collator": _UNMASKED},
            numerical_effect="rounding",
        ),
        "sdpa": Variant(
            doc="PyTorch's scaled_dot_product_attention, which chooses the kernel itself",
            model_kwargs={"attn_implementation": "sdpa"},
        ),
        # A configuration that the one kernel cannot compute fails, and does not fall back.
        "sdpa_flash": _single_kernel(
            "flash", "PyTorch's FlashAttention-2 kernel", traits=("maskless_kernel",)
        ),
        "sdpa_cudnn": _single_kernel("cudnn", "cuDNN's fused attention kernel"),
        "sdpa_efficient": _single_kernel("mem_efficient", "the memory-efficient kernel"),
        "sdpa_no_cudnn": Variant(
            doc="scaled_dot_product_attention without cuDNN, which prepares for each new length",
            model_kwargs={"attn_implementation": "sdpa"},
            hooks={"collator": _UNMASKED, "kernels": Hook("without_cudnn")},
            requires=("cuda",),
            numerical_effect="rounding",
        ),
        "eager": Variant(
            doc="Attention as separate operators: keeps the score matrix, whose memory grows with "
            "the square of the sequence length",
            model_kwargs={"attn_implementation": "eager"},
            numerical_effect="rounding",
        ),
        "flash_attention_2": _flash(
            "flash_attention_2",
            "The kernels of the flash-attn package; needs a 16-bit precision",
            "package:flash_attn",
            "capability>=8.0",
        ),
        "varlen": Variant(
            doc="PyTorch's own FlashAttention kernel for rows of unequal length in one sequence, "
            "without a mask; needs a 16-bit precision, and padding on the right",
            model_kwargs={"attn_implementation": "varlen"},
            hooks={"kernels": Hook("variable_length_attention")},
            requires=("task:causal-lm", "torch>=2.10", "capability>=8.0", "no_attention_dropout"),
            numerical_effect="rounding",
            traits=("half_precision_only",),
        ),
        "flash_attention_3": _flash(
            "flash_attention_3",
            "FlashAttention-3 for Hopper GPUs, from the package flash_attn_interface; needs a "
            "16-bit precision",
            "package:flash_attn_interface",
            "capability>=9.0",
        ),
        "hub_flash_attention_2": _flash(
            "kernels-community/flash-attn2",
            "FlashAttention-2 as a kernel that is downloaded from the Hub; needs a 16-bit "
            "precision",
            "hub_kernel:kernels-community/flash-attn2",
            "capability>=8.0",
        ),
        "hub_flash_attention_3": _flash(
            "kernels-community/vllm-flash-attn3",
            "FlashAttention-3 for Hopper GPUs as a kernel that is downloaded from the Hub; needs a "
            "16-bit precision",
            "hub_kernel:kernels-community/vllm-flash-attn3",
            "capability>=9.0",
        ),
        "xformers": Variant(
            doc="Memory-efficient attention of the package xformers, without a mask; needs "
            "padding on the right",
            model_kwargs={"attn_implementation": "xformers"},
            hooks={"kernels": Hook("xformers_attention")},
            requires=("task:causal-lm", "package:xformers", "cuda", "no_attention_dropout"),
            numerical_effect="rounding",
        ),
        "flex_attention": Variant(
            doc="PyTorch's flex_attention, which is compiled in the first step",
            model_kwargs={"attn_implementation": "flex_attention"},
            requires=("cuda", "no_attention_dropout"),
            numerical_effect="rounding",
        ),
    },
)
add(ATTENTION)


@hook("without_full_masks")
def without_full_masks(
    collate: Callable[[list[Any]], dict[str, Any]],
) -> Callable[[list[Any]], dict[str, Any]]:
    """``collate`` without masks that are all ones, which do not change the attention. In the whole
    process, it keeps transformers from making such a mask while a step is compiled."""
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

    collated.__wrapped__ = collate  # type: ignore[attr-defined]
    return collated


@hook("only_kernel")
def only_kernel(*, kernel: str) -> None:
    """Let scaled_dot_product_attention run "flash", "cudnn" or "mem_efficient" alone, or raise."""
    import torch

    # Without a tag, the cache could return compiled code for another kernel.
    torch.compiler.config.cache_key_tag = kernel
    for name in ("flash", "cudnn", "mem_efficient", "math"):
        enable = getattr(torch.backends.cuda, f"enable_{name}_sdp")
        enable(name == kernel)


@hook("without_cudnn")
def without_cudnn() -> None:
    """Keep scaled_dot_product_attention from cuDNN's kernel."""
    from torch import backends, compiler

    compiler.config.cache_key_tag = "without_cudnn"
    backends.cuda.enable_cudnn_sdp(False)


@hook("variable_length_attention")
def variable_length_attention() -> None:
    """Register ``torch.nn.attention.varlen`` as the causal attention implementation "varlen". Rows
    begin at ``cu_seq_lens_q`` of the batch; without it, each row is one sequence. Padding on the
    right does not change the tokens before it, and the loss ignores it."""
    from transformers import AttentionInterface

    AttentionInterface.register("varlen", varlen_forward)


def varlen_forward(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    scaling: float | None = None,
    cu_seq_lens_q: Any = None,
    max_length_q: int | None = None,
    **options: Any,
) -> tuple[Any, None]:
    """Attention of tensors of shape (batch, heads, tokens, width) to (batch, tokens, heads, width).
    Raises ValueError for what the kernel cannot compute: a window, soft caps, learnable sinks."""
    import inspect

    import torch
    from torch.nn.attention.varlen import varlen_attn

    _refuse_other_attention("varlen", options)
    attend: Any = varlen_attn  # its signature differs between versions of PyTorch
    batch, heads, tokens, width = query.shape
    begins, longest = cu_seq_lens_q, max_length_q
    if begins is None:
        begins = torch.arange(0, (batch + 1) * tokens, tokens, device=query.device)
        longest = tokens
    begins = begins.to(torch.int32)
    # The window is causal: all tokens to the left, and none to the right.
    arguments: dict[str, Any] = {"window_size": (-1, 0), "scale": scaling}
    if "enable_gqa" in inspect.signature(attend).parameters:
        arguments["enable_gqa"] = True
    else:
        key, value = _for_all_heads(query, key, value)
    flat = _flattened(query, key, value)
    output = attend(*flat, begins, begins, longest, longest, **arguments)
    return output.view(batch, tokens, heads, width), None


def _flattened(*parts: Any) -> list[Any]:
    """Queries, keys and values in the kernel's layout, (all tokens, heads, width), in 16 bits.
    Under autocast, rotary positions make queries and keys 32 bits."""
    import torch

    dtype = parts[0].dtype
    if dtype == torch.float32:
        dtype = torch.get_autocast_dtype(parts[0].device.type)
    return [part.transpose(1, 2).flatten(0, 1).to(dtype) for part in parts]


def _for_all_heads(query: Any, *parts: Any) -> list[Any]:
    """Keys and values, each head repeated for its group of queries (grouped-query attention)."""
    return [part.repeat_interleave(query.shape[1] // part.shape[1], dim=1) for part in parts]


def _refuse_other_attention(attention: str, options: dict[str, Any]) -> None:
    """Raises ValueError for what a kernel of causal rows cannot compute."""
    for name in ("sliding_window", "softcap", "s_aux", "position_bias"):
        if options.get(name) is not None:
            raise ValueError(f"attention={attention} has no {name}, which this model needs")


@hook("xformers_attention")
def xformers_attention() -> None:
    """Register xformers' causal attention as "xformers". Rows begin as in "varlen"."""
    from transformers import AttentionInterface

    AttentionInterface.register("xformers", xformers_forward)


class _RowMask:
    """The mask of the current batch. All layers share it, because creating it waits for the GPU."""

    begins: Any = None
    mask: Any = None


def xformers_forward(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    scaling: float | None = None,
    cu_seq_lens_q: Any = None,
    **options: Any,
) -> tuple[Any, None]:
    """Attention of tensors of shape (batch, heads, tokens, width) to (batch, tokens, heads, width).
    Raises ValueError for what the kernel cannot compute: a window, soft caps, learnable sinks."""
    from xformers.ops import memory_efficient_attention
    from xformers.ops.fmha.attn_bias import BlockDiagonalCausalMask, LowerTriangularMask

    _refuse_other_attention("xformers", options)
    mask = LowerTriangularMask()
    if cu_seq_lens_q is not None:
        if _RowMask.begins is not cu_seq_lens_q:
            lengths = cu_seq_lens_q.diff().tolist()
            _RowMask.mask = BlockDiagonalCausalMask.from_seqlens(lengths, device=query.device)
            _RowMask.begins = cu_seq_lens_q
        mask = _RowMask.mask
    key, value = _for_all_heads(query, key, value)
    # Under autocast, rotary positions make queries and keys 32 bits, but values have 16.
    parts = [part.transpose(1, 2).to(value.dtype) for part in (query, key, value)]
    return memory_efficient_attention(*parts, attn_bias=mask, scale=scaling), None
