"""Losses of the loss axis that weight each token: a different training, not another computation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.spec import Hook, Task
from jobs.techniques.hooks import hook
from jobs.techniques.variant import AXES, Family, Variant

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class EntropyWeights:
    """A token's weight: the entropy of its ``k`` likeliest successors, to the power ``alpha``."""

    alpha: float = 1.0
    k: int = 20


def _eaft(parameters: Mapping[str, Any]) -> Variant:
    return Variant(
        doc="Entropy-adaptive fine-tuning (EAFT): a token that the model is sure of, rightly or "
        "wrongly, counts little; the logits of all tokens are in memory at once",
        hooks={"loss": Hook("entropy_weighted_loss", dict(parameters))},
        requires=("task:causal-lm",),
        numerical_effect="training",
    )


def _no_weights(parameters: Mapping[str, Any]) -> str:
    if parameters.get("k", 20) < 2:
        return "k must be at least 2: the entropy of a single token is 0, and nothing would train"
    if parameters.get("alpha", 1.0) < 0:
        return "alpha must be at least 0: a token with entropy 0 would have an infinite weight"
    return ""


AXES["loss"].variants["eaft"] = _eaft({})
AXES["loss"].families["eaft"] = Family(
    doc="eaft with alpha, the exponent of the weights, and k, the number of likeliest tokens "
    "whose entropy is the weight",
    config_class="jobs.finetuning.weighted_loss:EntropyWeights",
    build=_eaft,
    problem=_no_weights,
)


@hook("entropy_weighted_loss")
def entropy_weighted_loss(
    model: torch.nn.Module, task: Task, arguments: Any, *, alpha: float = 1.0, k: int = 20
) -> torch.nn.Module:
    """``model`` that trains with each token's cross-entropy times the entropy of its prediction.

    The entropy is that of the softmax over the ``k`` largest logits, in nats, without a gradient.
    Evaluation is unchanged. Raises NotImplementedError for another loss than the cross-entropy of
    the next token.
    """
    import torch
    from transformers.loss.loss_utils import ForCausalLMLoss

    original: Any = model.loss_function
    if original is not ForCausalLMLoss or arguments.label_smoothing_factor:
        raise NotImplementedError(
            f"{type(model).__name__} does not support a weighted loss: its loss is not the plain "
            "cross-entropy of the next token"
        )

    def loss_function(
        logits: Any,
        labels: Any,
        vocab_size: int,
        num_items_in_batch: Any = None,
        ignore_index: int = -100,
        shift_labels: Any = None,
        **kwargs: Any,
    ) -> Any:
        if not model.training:
            return original(
                logits, labels, vocab_size, num_items_in_batch, ignore_index, shift_labels, **kwargs
            )
        following = shift_labels
        if following is None:
            following = torch.nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
        targets = following.flatten().to(logits.device)
        # Softmax in 32 bits, as in transformers: 16 bits are too coarse for sums over a vocabulary.
        rows = logits.float().flatten(0, -2)
        losses = torch.nn.functional.cross_entropy(
            rows, targets, reduction="none", ignore_index=ignore_index
        )
        total = (losses * _entropies(rows, k).pow(alpha)).sum()
        # The same division as in transformers.loss.loss_utils.fixed_cross_entropy.
        if num_items_in_batch is None:
            return total / (targets != ignore_index).sum()
        return total / num_items_in_batch

    loss_function.implementation = "eaft"  # type: ignore[attr-defined]
    model.loss_function = loss_function  # type: ignore[assignment]
    return model


def _entropies(rows: torch.Tensor, k: int) -> torch.Tensor:
    """The entropy of the softmax over the ``k`` largest of each row, shape (rows,)."""
    import torch

    with torch.no_grad():
        largest = rows.topk(min(k, rows.shape[-1]), dim=-1).values
        logarithms = largest.log_softmax(dim=-1)
        # The entropy is -Σ p·log p (Shannon 1948).
        return -(logarithms.exp() * logarithms).sum(dim=-1)
