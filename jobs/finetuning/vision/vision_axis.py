"""Vision axis: whether the vision tower of a vision-language model is trained; its data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.spec import DataSpec, Hook, Task
from jobs.techniques.hooks import hook, services_of
from jobs.techniques.variant import Axis, Variant, add

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

VISION = Axis(
    name="vision",
    doc="Whether the vision tower of a vision-language model is trained",
    default="default",
    variants={
        "default": Variant(
            doc="Trained together with the language model, unless an adapter freezes the model"
        ),
        "frozen": Variant(
            doc="The vision tower is not trained, so it has no gradients, optimizer states or "
            "saved activations; the projector and the language model are trained",
            hooks={"vision": Hook("frozen_vision")},
            requires=("task:image-text-to-text",),
            numerical_effect="training",
            traits=("frozen_vision",),
        ),
    },
)
add(VISION)
services_of("jobs.finetuning.vision.vision_axis", "images_with_texts", "image_tokens")
services_of("jobs.finetuning.vision.image_layouts", "layout_of", "family_of")


@hook("frozen_vision")
def frozen_vision(model: torch.nn.Module, task: Task, arguments: Any) -> torch.nn.Module:
    """``model`` with its vision tower frozen. Raises NotImplementedError if it has none."""
    tower: Any = model.get_encoder(modality="image")  # type: ignore[operator]
    # transformers returns the model itself if it finds no tower.
    if tower is model or tower is getattr(model, "model", None):
        raise NotImplementedError(f"{type(model).__name__} does not support a frozen vision tower")
    tower.requires_grad_(False)
    return model


def images_with_texts(
    data: DataSpec, config: PretrainedConfig, *, samples: int | None, seed: int
) -> tuple[Any, Any]:
    """The dataset and its collator; arguments and errors as for ``jobs.trial.data.load``."""
    if data.file is not None:
        from jobs.finetuning.vision.processed_images import images_of_file

        return images_of_file(data.file, config)
    from jobs.finetuning.vision.random_images import image_texts

    assert data.synthetic is not None
    return image_texts(data.synthetic, config, samples=samples, seed=seed)


def image_tokens(dataset: Any, config: PretrainedConfig) -> float:
    """Tokens of a sample that images replace, on average over the first rows of a dataset."""
    if hasattr(dataset, "image_tokens"):  # random images: the same in each sample
        return float(dataset.image_tokens)
    rows = dataset.select(range(min(len(dataset), 1_000)))["input_ids"]
    return sum(list(row).count(config.image_token_id) for row in rows) / len(rows)
