"""The samples and tokens of micro-batches, with and without attention masks."""

from __future__ import annotations

import pytest
import torch

from jobs.trackers.sources.micro_batches import MicroBatches


def test_real_tokens_of_batches_with_and_without_a_mask() -> None:
    batches = MicroBatches()
    whole = {"input_ids": torch.ones(2, 12, dtype=torch.int64)}
    padded = {**whole, "attention_mask": torch.tensor([[1] * 12, [1] * 6 + [0] * 6])}
    for inputs in (padded, whole, padded, whole):
        batches.add(inputs)
    assert batches.rates(2, seconds=1.0) == {
        "samples_per_second": 4.0,
        "tokens_per_second": 48.0,
        "real_tokens_per_second": 18.0 + 24.0,
    }


def test_samples_that_a_collator_counts_on_the_device() -> None:
    batches = MicroBatches()
    for rows in (3, 5):
        batches.add({"pixel_values": torch.ones(1, 8)}, lambda _, rows=rows: torch.tensor(rows))
    assert batches.rates(1, seconds=2.0) == {"samples_per_second": pytest.approx(2.5)}
