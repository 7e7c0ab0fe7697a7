"""Models that compute with the Trainer's count of items, and models that ignore it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from jobs.loops.item_count import is_used, is_used_by, watched

Loss = Callable[[torch.Tensor, Any], torch.Tensor]


def divide(total: torch.Tensor, count: Any) -> torch.Tensor:
    return total / count


def divide_after_a_copy(total: torch.Tensor, count: Any) -> torch.Tensor:
    return total / count.to(total.device).float()


def divide_by_a_number(total: torch.Tensor, count: Any) -> torch.Tensor:
    return total / count.item()


def ignore(total: torch.Tensor, count: Any) -> torch.Tensor:
    return total.mean()


def only_ask(total: torch.Tensor, count: Any) -> torch.Tensor:
    """Reads attributes and compares; the loss does not depend on the count."""
    if count is not None and count.dim() == 0 and count.device == total.device and count > 0:
        return total.mean()
    return total


CASES = pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (divide, True),
        (divide_after_a_copy, True),
        (divide_by_a_number, True),
        (ignore, False),
        (only_ask, False),
    ],
)


@CASES
def test_is_used_after_a_forward_pass(loss: Loss, expected: bool) -> None:
    count = watched(torch.tensor(8.0))
    result = loss(torch.tensor(4.0, requires_grad=True), count)
    assert is_used(count) is expected
    assert type(result) is torch.Tensor


def test_watched_count_shares_its_storage() -> None:
    count = torch.tensor(8.0)
    assert watched(count).data_ptr() == count.data_ptr()


class Model(torch.nn.Module):
    """A linear layer whose loss is one of the cases above."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.dropout = torch.nn.Dropout()
        self._loss = loss

    def forward(self, inputs: torch.Tensor, num_items_in_batch: Any) -> torch.Tensor:
        return self._loss(self.dropout(self.layer(inputs)).sum(), num_items_in_batch)


def compute_loss(model: Any, inputs: Mapping[str, Any], count: Any) -> Any:
    return model(**inputs, num_items_in_batch=count)


@pytest.mark.parametrize(
    ("loss", "expected"), [(divide, True), (divide_after_a_copy, True), (ignore, False)]
)
def test_is_used_by_draws_no_number_and_keeps_weights(loss: Loss, expected: bool) -> None:
    model = Model(loss)
    weights = model.layer.weight.clone()
    state = torch.get_rng_state()
    inputs = {"inputs": torch.ones(2, 4)}
    assert is_used_by(compute_loss, model, inputs, torch.tensor(8.0)) is expected
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(model.layer.weight, weights)


def test_is_used_by_a_model_that_needs_values_raises() -> None:
    model = Model(lambda total, count: total if float(total) > 0 else -total)
    with pytest.raises(Exception, match="_local_scalar_dense"):
        is_used_by(compute_loss, model, {"inputs": torch.ones(2, 4)}, torch.tensor(8.0))
