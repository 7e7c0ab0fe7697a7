"""Finds sequences that are longer than a model's table of positions. Such a trial would raise."""

from typing import Any

import torch

from orchestrator.prediction.tracing.rows.batches import BatchShapes

_POSITION_NAMES = ("position_embedding", "embed_positions", "wpe", "position_ids_embedding")


def why_beyond(model: torch.nn.Module, batch: BatchShapes) -> str:
    """Why the model raises on a batch, if that is longer than a table of positions; else empty. A
    trace does not show this, because its tensors have no data. On a GPU, a device-side assertion
    ends the process."""
    config: Any = model.config
    for name, module in model.named_modules():
        last = name.rpartition(".")[2]
        is_of_positions = any(part in last for part in _POSITION_NAMES)
        # Positions of an image's patches are not those of tokens.
        is_of_images = "vision" in name or "visual" in name
        if not isinstance(module, torch.nn.Embedding) or not is_of_positions or is_of_images:
            continue
        # The inputs of a decoder are the labels, shifted by one.
        of_decoder = bool(config.is_encoder_decoder) and "decoder" in name
        tokens = batch.tokens(of_decoder=of_decoder)
        positions = _usable_positions(module)
        if tokens > positions:
            return (
                f"it raises: sequences have {tokens} tokens, and the model has positions for "
                f"{positions} ({name})"
            )
    return ""


def _usable_positions(table: torch.nn.Embedding) -> int:
    # BART and OPT skip the first ``offset`` rows. RoBERTa begins after the padding token's.
    offset = getattr(table, "offset", None)
    if not isinstance(offset, int):
        offset = 0 if table.padding_idx is None else table.padding_idx + 1
    return table.num_embeddings - offset
