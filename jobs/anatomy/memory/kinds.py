"""What memory is held for: the words of predictions and of measurements."""

from __future__ import annotations

from collections.abc import Mapping

KINDS: Mapping[str, str] = {
    "weights": "parameters and buffers",
    "gradients": "one for each trained parameter",
    "optimizer states": "what the optimizer keeps for each parameter",
    "saved activations": "kept by the forward pass for the backward pass",
    "recomputed activations": "made again in the backward pass under checkpointing",
    "autocast copies of weights": "16-bit copies of 32-bit parameters",
    "inputs": "the batch",
    "temporary buffers": "operators' results on their way",
    "kernel workspaces": "what single kernels take while they run",
    "library workspaces": "cuBLAS's, kept once taken",
    "ZeRO buffers": "DeepSpeed's flat partitions and buckets",
}
"""What memory is held for at the peak -> meaning. A measurement cannot tell kernels' workspaces from other temporary
buffers."""

OTHER = "other"
"""Held before the step by nobody who could be asked."""

SPECIAL: Mapping[str, str] = {
    "LoRA adapters": "weights",
    "32-bit master weights": "optimizer states",
}
"""Functions with a name of their own -> the kind that they are part of."""


def kind_of(name: str) -> str:
    """The kind that a named share of the memory belongs to."""
    return SPECIAL.get(name, name)
