"""The collator of attention without masks."""

from __future__ import annotations

import pytest
import torch
from transformers import default_data_collator

from jobs.techniques.attention import without_full_masks


@pytest.mark.parametrize("padded", [False, True])
def test_only_a_mask_that_masks_nothing_is_left_out(padded: bool) -> None:
    rows = [
        {"input_ids": [5, 6, 7], "attention_mask": [1, 1, 1]},
        {"input_ids": [8, 9, 0], "attention_mask": [1, 1, 0 if padded else 1]},
    ]
    batch = without_full_masks(default_data_collator)(rows)
    assert torch.equal(batch["input_ids"], torch.tensor([[5, 6, 7], [8, 9, 0]]))
    assert ("attention_mask" in batch) == padded
