"""Attention without needless masks, and with a single kernel."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, default_data_collator
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from jobs.techniques.axes.attention import only_kernel, without_full_masks


@pytest.fixture(autouse=True)
def restored_masks() -> Iterator[None]:
    """Undo what a test registers: trials have a process of their own, but tests share one."""
    yield
    AttentionMaskInterface.register("sdpa", sdpa_mask)


@pytest.mark.parametrize("padded", [False, True])
def test_without_full_masks_keeps_only_masks_that_mask(padded: bool) -> None:
    rows = [
        {"input_ids": [5, 6, 7], "attention_mask": [1, 1, 1]},
        {"input_ids": [8, 9, 0], "attention_mask": [1, 1, 0 if padded else 1]},
    ]
    batch = without_full_masks(default_data_collator)(rows)
    assert torch.equal(batch["input_ids"], torch.tensor([[5, 6, 7], [8, 9, 0]]))
    assert ("attention_mask" in batch) == padded


@pytest.mark.parametrize("padded", [False, True])
def test_without_full_masks_traces_attention_without_a_mask(padded: bool) -> None:
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    model = BertForSequenceClassification(BertConfig(**sizes)).eval()
    rows = [{"input_ids": [5, 6, 7], "attention_mask": [1, 1, 0 if padded else 1], "labels": 1}]
    batch = without_full_masks(default_data_collator)(rows)
    masked: list[bool] = []

    # A backend of torch.compile that looks at the traced operators and compiles nothing.
    def backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> object:
        for node in graph.graph.nodes:
            if "scaled_dot_product" in str(node.target):
                masked.append(node.kwargs["attn_mask"] is not None)
        return graph.forward

    torch.compiler.reset()
    traced = torch.compile(model, backend=backend)(**batch)
    assert masked == [padded]
    assert torch.allclose(traced.logits, model(**batch).logits, atol=1e-5)


def test_only_kernel_disables_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    enabled: dict[str, bool] = {}
    for kernel in ("flash", "cudnn", "mem_efficient", "math"):
        switch = functools.partial(enabled.__setitem__, kernel)
        monkeypatch.setattr(torch.backends.cuda, f"enable_{kernel}_sdp", switch)
    with torch.compiler.config.patch(cache_key_tag=""):
        only_kernel(kernel="flash")
        assert torch.compiler.config.cache_key_tag == "flash"
    assert enabled == {"flash": True, "cudnn": False, "mem_efficient": False, "math": False}
