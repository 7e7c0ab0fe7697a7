"""The entropy-weighted loss, compared with its formula written out."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from jobs.finetuning.weighted_loss import entropy_weighted_loss
from jobs.trial.effective_code import code
from tests.support.tiny_decoders import TOKENS, decoder

PLAIN = SimpleNamespace(label_smoothing_factor=0.0)
LABELS = torch.where(torch.arange(16) < 5, -100, TOKENS)


def unsure() -> Any:
    """A tiny decoder in training whose predictions are not all equally sure."""
    model = decoder()
    with torch.no_grad():
        model.lm_head.weight.mul_(40)
    return model


def expected(logits: torch.Tensor, alpha: float, k: int) -> float:
    """The sum over the counted tokens, each written out on its own."""
    total = 0.0
    for row in range(2):
        for position in range(15):
            label = int(LABELS[row, position + 1])
            if label == -100:
                continue
            scores = logits[row, position].double()
            shares = sorted(scores.tolist(), reverse=True)[:k]
            exponentials = [math.exp(share - shares[0]) for share in shares]
            chances = [value / sum(exponentials) for value in exponentials]
            entropy = -sum(chance * math.log(chance) for chance in chances)
            loss = torch.logsumexp(scores, 0) - scores[label]
            total += float(loss) * entropy**alpha
    return total


@pytest.mark.parametrize(("alpha", "k"), [(1.0, 20), (0.5, 3), (2.0, 1000)])
def test_eaft_loss_is_cross_entropy_times_entropy(alpha: float, k: int) -> None:
    model = entropy_weighted_loss(unsure(), "causal-lm", PLAIN, alpha=alpha, k=k)
    outputs = model(input_ids=TOKENS, labels=LABELS)
    total = expected(outputs.logits.detach(), alpha, k)
    labels = int((LABELS[:, 1:] != -100).sum())
    assert outputs.loss.item() == pytest.approx(total / labels, rel=1e-4)
    accumulated = model(input_ids=TOKENS, labels=LABELS, num_items_in_batch=torch.tensor(100))
    assert accumulated.loss.item() == pytest.approx(total / 100, rel=1e-4)


def test_eaft_with_exponent_0_trains_as_the_plain_loss() -> None:
    plain, weighted = unsure(), entropy_weighted_loss(unsure(), "causal-lm", PLAIN, alpha=0.0)
    for model in (plain, weighted):
        model(input_ids=TOKENS, labels=LABELS).loss.backward()
    for one, other in zip(plain.parameters(), weighted.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    assert code(weighted)["loss_implementation"] == "eaft"


def test_eaft_leaves_the_evaluation_as_it_is() -> None:
    plain, weighted = unsure(), entropy_weighted_loss(unsure(), "causal-lm", PLAIN)
    losses = [model.eval()(input_ids=TOKENS, labels=LABELS).loss for model in (plain, weighted)]
    assert torch.equal(*losses)


def test_eaft_with_label_smoothing_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="does not support a weighted loss"):
        entropy_weighted_loss(unsure(), "causal-lm", SimpleNamespace(label_smoothing_factor=0.1))
