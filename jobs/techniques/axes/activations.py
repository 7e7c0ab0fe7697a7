"""Activations axis: keep what the backward pass needs, recompute it, or move it to the host."""

from typing import Any

from jobs.techniques.base import Axis, Variant

RENAMED = {
    "gradient_checkpointing": "activation_checkpointing",
    "gradient_checkpointing_kwargs": "activation_checkpointing_kwargs",
}
"""Training arguments that transformers 5.23 renamed, old -> new. Rows use the old names, because
transformers 5.17 has only those."""


def _checkpoint(doc: str, requires: tuple[str, ...] = (), **kwargs: Any) -> Variant:
    return Variant(
        doc=doc,
        training_arguments={
            "gradient_checkpointing": True,
            "gradient_checkpointing_kwargs": kwargs,
        },
        requires=requires,
    )


ACTIVATIONS = Axis(
    name="activations",
    doc="How the activations that the backward pass needs are kept",
    default="keep",
    variants={
        "keep": Variant(doc="No checkpointing: all saved activations stay in device memory"),
        "checkpoint": _checkpoint(
            "Gradient checkpointing: the backward pass recomputes each layer; saves most of the "
            "activation memory, costs about one more forward pass",
            use_reentrant=False,
        ),
        "checkpoint_reentrant": _checkpoint(
            "Gradient checkpointing by PyTorch's older, reentrant implementation",
            use_reentrant=True,
        ),
        # The last two need arguments that only transformers 5.23 has.
        "checkpoint_every_2": _checkpoint(
            "Gradient checkpointing of every second layer: saves less memory, costs less time",
            requires=("transformers>=5.23",),
            use_reentrant=False,
            every_n_layers=2,
        ),
        "checkpoint_offload": _checkpoint(
            "Gradient checkpointing with the layers' inputs moved to host memory: saves more "
            "device memory, costs transfers",
            requires=("transformers>=5.23", "cuda"),
            use_reentrant=False,
            offload=True,
        ),
    },
)
