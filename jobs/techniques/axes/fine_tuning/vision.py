"""Vision axis: whether the vision tower of a vision-language model is trained.

It is an axis of its own, and not a matter of an adapter's targets, because people freeze the tower
in full fine-tuning, too. Adapters reach the tower only by a regular expression in their targets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.spec import Hook
from jobs.techniques.base import Axis, Variant
from jobs.techniques.hooks import hook

if TYPE_CHECKING:
    import torch

    from jobs.spec import Task

VISION = Axis(
    name="vision",
    doc="Whether the vision tower of a vision-language model is trained",
    default="default",
    variants={
        "default": Variant(doc="Trained with the rest, unless an adapter freezes the whole model"),
        "frozen": Variant(
            doc="The vision tower keeps its weights: no gradients, optimizer states or "
            "activations of it; its projector and the language model are trained",
            hooks={"vision": Hook("frozen_vision")},
            requires=("task:image-text-to-text",),
            numerical_effect="training",
            traits=("frozen_vision",),
        ),
    },
)


@hook("frozen_vision")
def frozen_vision(model: torch.nn.Module, task: Task, arguments: Any) -> torch.nn.Module:
    """``model`` with its vision tower frozen. Raises NotImplementedError if it has none."""
    tower: Any = model.get_encoder(modality="image")  # type: ignore[operator]
    # transformers returns the model itself where it knows no tower.
    if tower is model or tower is getattr(model, "model", None):
        raise NotImplementedError(f"{type(model).__name__} does not support a frozen vision tower")
    tower.requires_grad_(False)
    return model
