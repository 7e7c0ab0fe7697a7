"""Activations axis: keep what the backward pass needs, recompute it (checkpointing), or park it on the host."""

from typing import Any

from jobs.techniques.base import Axis, Variant

RENAMED = {
    "gradient_checkpointing": "activation_checkpointing",
    "gradient_checkpointing_kwargs": "activation_checkpointing_kwargs",
}
"""Training arguments that transformers 5.23 renamed, old -> new. Rows use the old names, which 5.17 has."""


def _checkpoint(doc: str, requires: tuple[str, ...] = (), **kwargs: Any) -> Variant:
    return Variant(
        doc=doc,
        training_arguments={
            "gradient_checkpointing": True,
            "gradient_checkpointing_kwargs": kwargs,
        },
        requires=requires,
        traits=("checkpointing",),
    )


ACTIVATIONS = Axis(
    name="activations",
    doc="what happens to the activations that the backward pass needs",
    default="keep",
    variants={
        "keep": Variant(doc="all saved activations stay in memory"),
        "checkpoint": _checkpoint("gradient checkpointing, non-reentrant", use_reentrant=False),
        "checkpoint_reentrant": _checkpoint(
            "gradient checkpointing, the older reentrant kind", use_reentrant=True
        ),
        "checkpoint_every_2": _checkpoint(
            "gradient checkpointing of every second layer",
            requires=("transformers>=5.23",),
            use_reentrant=False,
            every_n_layers=2,
        ),
        "checkpoint_offload": _checkpoint(
            "gradient checkpointing with the saved activations offloaded to the host",
            requires=("transformers>=5.23", "cuda"),
            use_reentrant=False,
            offload=True,
        ),
    },
)
