"""What a preference training really compared with, and the loss that it had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.record import Column

if TYPE_CHECKING:
    import torch

    from jobs.loops.base import PreferenceFacts

COLUMNS = (
    Column(
        "reference",
        "string",
        "What a preference training compared with: a frozen model (model), the model without its "
        "adapter (adapter off), or figures from before the training (computed before); null for "
        "other trainings",
    ),
    Column(
        "reference_model_bytes",
        "int64",
        "Bytes of the parameters and buffers of a preference training's reference model, which "
        "stays in memory; 0 without such a model, null for other trainings",
        unit="B",
    ),
    Column(
        "reference_seconds",
        "float64",
        "Time that the reference's log-probabilities of all rows took before the training; null "
        "where each step computes its own",
        unit="s",
    ),
    Column(
        "preference_loss",
        "string",
        "Losses that a preference training added up, by TRL's names; null for other trainings",
    ),
    Column(
        "preference_beta",
        "float64",
        "Weight of the reference in a preference training's loss; null for other trainings",
    ),
)


def measurements(facts: PreferenceFacts | None) -> dict[str, Any]:
    """Values of ``COLUMNS``; empty for other trainings."""
    if facts is None:
        return {}
    values: dict[str, Any] = {
        "reference": facts.source,
        "reference_model_bytes": model_bytes(facts.reference),
        "preference_loss": ", ".join(facts.losses),
        "preference_beta": facts.beta,
    }
    if facts.reference_seconds is not None:
        values["reference_seconds"] = facts.reference_seconds
    return values


def model_bytes(model: torch.nn.Module | None) -> int:
    """Bytes of a model's parameters and buffers, each storage once; 0 for None."""
    if model is None:
        return 0
    nbytes_by_address = {}
    for tensor in (*model.parameters(), *model.buffers()):
        storage = tensor.untyped_storage()
        nbytes_by_address[storage.data_ptr()] = storage.nbytes()
    return sum(nbytes_by_address.values())
