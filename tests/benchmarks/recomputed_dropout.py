"""Are the gradients of compiled code with a memory budget those of its loss? Checked on the CPU.

    python -m tests.benchmarks.recomputed_dropout [--dropout 0.1]

The weights of a small BERT move a little along the gradient g, forwards and backwards. The loss
then changes by |g|² for each unit of the move, if g is the gradient of the loss. Every call draws
the same dropout. A ratio other than 1 means that the backward pass used another dropout.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
import torch._functorch.config as functorch
from transformers import BertConfig, BertForSequenceClassification

BUDGETS = (1.0, 0.8, 0.5, 0.2, 0.05)
MOVE = 2e-3
"""Length of the move: small enough for the loss to be linear, large enough for 32 bits."""


def ratio(model: torch.nn.Module, inputs: dict[str, torch.Tensor], budget: float) -> float:
    """Change of the loss along its gradient, relative to the expected change."""
    torch.compiler.reset()
    functorch.activation_memory_budget = budget
    compiled = torch.compile(model)

    def loss() -> torch.Tensor:
        torch.manual_seed(1)
        return compiled(**inputs).loss

    model.zero_grad()
    loss().backward()
    weights = [weight for weight in model.parameters() if weight.grad is not None]
    gradients = [weight.grad.clone() for weight in weights if weight.grad is not None]
    squared = sum(float((gradient**2).sum()) for gradient in gradients)
    step = MOVE / squared**0.5

    def moved(by: float) -> float:
        with torch.no_grad():
            torch._foreach_add_(weights, gradients, alpha=by)
            value = float(loss())
            torch._foreach_sub_(weights, gradients, alpha=by)
        return value

    # The central difference quotient of the loss along the gradient.
    return (moved(step) - moved(-step)) / (2 * step) / squared


def lines(dropout: float) -> Iterator[str]:
    """The ratio for each budget."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        vocab_size=100,
        max_position_embeddings=64,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    model = BertForSequenceClassification(config).train()
    inputs = {"input_ids": torch.randint(0, 100, (16, 32)), "labels": torch.randint(0, 2, (16,))}
    yield f"torch {torch.__version__.partition('+')[0]}, dropout {dropout:g}"
    for budget in BUDGETS:
        yield f"budget {budget:g}: {ratio(model, inputs, budget):.3f}"


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.recomputed_dropout",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--dropout", type=float, default=0.1, help="default: 0.1")
    for line in lines(parser.parse_args().dropout):
        print(line, flush=True)


if __name__ == "__main__":
    main()
