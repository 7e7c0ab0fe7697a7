"""Attention without needless masks, and with a single kernel."""

import functools
import itertools
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, default_data_collator
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from jobs.techniques.axes.attention import (
    only_kernel,
    variable_length_attention,
    without_cudnn,
    without_full_masks,
    xformers_attention,
    xformers_forward,
)
from jobs.techniques.axes.batching import flattened_rows, padded_to_multiple
from jobs.trial.data.collators import PadRows
from tests.conftest import TINY_BERT
from tests.support.tiny_decoders import decoder


@pytest.fixture(autouse=True)
def restored_masks() -> Iterator[None]:
    """Undo what a test registers: trials have a process of their own, but tests share one."""
    yield
    AttentionMaskInterface.register("sdpa", sdpa_mask)


@pytest.mark.parametrize("padded", [False, True])
def test_without_full_masks_traces_attention_without_a_mask(padded):
    model = BertForSequenceClassification(BertConfig(**TINY_BERT)).eval()
    whole = {"input_ids": [5, 6, 7], "attention_mask": [1, 1, 1], "labels": 1}
    rows = [whole, {**whole, "attention_mask": [1, 1, 0 if padded else 1]}]
    batch = without_full_masks(default_data_collator)(rows)
    masked = []

    # A backend of torch.compile that looks at the traced operators and compiles nothing.
    def backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> object:
        for node in graph.graph.nodes:
            if "scaled_dot_product" in str(node.target):
                masked.append(node.kwargs["attn_mask"] is not None)
        return graph.forward

    torch.compiler.reset()
    traced = torch.compile(model, backend=backend)(**batch)
    assert masked == [padded] * 2, "one for each layer"
    assert torch.allclose(traced.logits, model(**batch).logits, atol=1e-5)


@pytest.mark.parametrize(("lengths", "has_mask"), [((5, 3), True), ((6, 6), False)])
def test_rows_are_padded_to_a_multiple_below_the_collator_that_leaves_out_masks(lengths, has_mask):
    rows = [{"input_ids": [7] * count, "labels": [7] * count} for count in lengths]
    collate = without_full_masks(PadRows(9))
    _, collate = padded_to_multiple([], collate, attention="", tokens=64, multiple=3)
    batch = collate(rows)
    assert batch["input_ids"].shape == (2, 6)
    assert ("attention_mask" in batch) is has_mask


def test_only_kernel_disables_the_others(monkeypatch):
    enabled = {}
    for kernel in ("flash", "cudnn", "mem_efficient", "math"):
        switch = functools.partial(enabled.__setitem__, kernel)
        monkeypatch.setattr(torch.backends.cuda, f"enable_{kernel}_sdp", switch)
    with torch.compiler.config.patch(cache_key_tag=""):
        only_kernel(kernel="flash")
        assert torch.compiler.config.cache_key_tag == "flash"
    assert enabled == {"flash": True, "cudnn": False, "mem_efficient": False, "math": False}


def test_without_cudnn_leaves_the_other_kernels_on():
    assert torch.backends.cuda.cudnn_sdp_enabled()
    try:
        with torch.compiler.config.patch(cache_key_tag=""):
            without_cudnn()
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert torch.backends.cuda.flash_sdp_enabled()
        assert torch.backends.cuda.mem_efficient_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)


def _varlen_attn(*arguments: Any, scale: Any, window_size: Any, enable_gqa: Any) -> Any:
    """What torch's kernel computes, row by row; heads are in dimension 1."""
    query, key, value, begins, *_ = arguments
    assert window_size == (-1, 0)
    parts = []
    for begin, end in itertools.pairwise(begins.tolist()):
        row = [part[begin:end].transpose(0, 1).float() for part in (query, key, value)]
        out = torch.nn.functional.scaled_dot_product_attention(
            *row, is_causal=True, scale=scale, enable_gqa=enable_gqa
        )
        parts.append(out.transpose(0, 1))
    return torch.cat(parts)


def test_variable_length_attention_is_sdpa_of_each_row(monkeypatch):
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", _varlen_attn)
    variable_length_attention()
    assert _with_and_without("varlen") == pytest.approx(_with_and_without("sdpa"), rel=2e-2)


def _with_and_without(attention: str) -> list[float]:
    """Losses of a small Llama: of two padded rows, and of the same rows in one sequence."""
    model = decoder(num_attention_heads=4, use_cache=False)
    model.set_attn_implementation(attention)
    rows = [{"input_ids": ids, "labels": ids} for ids in (torch.arange(1, 8), torch.arange(9, 13))]
    takes_masks = attention == "sdpa"
    _, flat = flattened_rows(None, PadRows(0), attention="" if takes_masks else attention, tokens=8)
    with torch.autocast("cpu", torch.bfloat16, enabled=not takes_masks):
        return [float(model(**collate(rows)).loss.detach()) for collate in (PadRows(0), flat)]


class _Mask:
    """In the place of both masks of xformers."""

    made = 0

    def __init__(self, lengths: list[int] | None = None) -> None:
        self.lengths = lengths

    @classmethod
    def from_seqlens(cls, lengths: list[int], *, device: torch.device) -> "_Mask":
        cls.made += 1
        return cls(lengths)


def _memory_efficient_attention(
    query: Any, key: Any, value: Any, *, attn_bias: _Mask, scale: float | None
) -> Any:
    """What xformers computes, for tensors of shape (batch, tokens, heads, width)."""
    assert query.shape == key.shape == value.shape
    assert query.dtype == key.dtype == value.dtype
    lengths = attn_bias.lengths or [query.shape[1]]
    pieces = [part.transpose(1, 2).split(lengths, dim=2) for part in (query, key, value)]
    attend = torch.nn.functional.scaled_dot_product_attention
    parts = [attend(*row, is_causal=True, scale=scale) for row in zip(*pieces, strict=True)]
    return torch.cat(parts, dim=2).transpose(1, 2)


@pytest.fixture
def xformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's interface, whose kernels need a GPU."""
    ops = types.ModuleType("xformers.ops")
    ops.memory_efficient_attention = _memory_efficient_attention
    masks = types.ModuleType("xformers.ops.fmha.attn_bias")
    masks.BlockDiagonalCausalMask = masks.LowerTriangularMask = _Mask
    modules = {"xformers": types.ModuleType("xformers"), "xformers.ops": ops}
    modules["xformers.ops.fmha"] = types.ModuleType("xformers.ops.fmha")
    modules["xformers.ops.fmha.attn_bias"] = masks
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


def test_xformers_attention_is_sdpa_of_each_row(xformers):
    xformers_attention()
    _Mask.made = 0
    assert _with_and_without("xformers") == pytest.approx(_with_and_without("sdpa"), rel=2e-2)
    assert _Mask.made == 1  # once for the two layers


def test_xformers_attention_refuses_a_window(xformers):
    tensor = torch.zeros(1, 1, 2, 4)
    with pytest.raises(ValueError, match="attention=xformers has no sliding_window"):
        xformers_forward(None, tensor, tensor, tensor, None, sliding_window=4)
