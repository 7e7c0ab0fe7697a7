"""The kinds of memory that training needs: the vocabulary of measurements and of predictions."""

from collections.abc import Mapping

KINDS: Mapping[str, str] = {
    "weights": "Parameters and buffers",
    "gradients": "One for each trained parameter",
    "optimizer states": "What the optimizer keeps for each parameter",
    "saved activations": "Kept by the forward pass for the backward pass",
    "recomputed activations": "Computed again in the backward pass under checkpointing",
    "autocast copies of weights": "16-bit copies of 32-bit parameters",
    "inputs": "The batch",
    "logits": "The scores of all classes or tokens, and what the loss makes of them",
    "temporary buffers": "Intermediate results of operators",
    "kernel workspaces": "Scratch memory of single kernels while they run",
    "library workspaces": "Scratch memory that cuBLAS keeps once it has allocated it",
    "ZeRO buffers": "DeepSpeed's flat partitions and buckets",
    "gathered parameters": "Whole parameters whose parts several GPUs keep",
    "communication buffers": "Gradients on their way between GPUs",
}
"""Kind of memory -> meaning. A measurement counts kernel workspaces as temporary buffers, and
logits as these or as saved activations."""

OTHER = "other"
"""Memory that was allocated before the profiled step, for a purpose that is not known."""

_PART_OF = {
    "LoRA adapters": "weights",
    "reference model": "weights",
    "32-bit master weights": "optimizer states",
}
"""Name with an entry of its own in the anatomy -> the kind of memory that it belongs to."""


def kind_of(name: str) -> str:
    """The kind of memory that a name belongs to."""
    return _PART_OF.get(name, name)
