"""A tiny vision-language model of each family, and what its images are."""

from typing import Any

import yaml

from jobs.spec import ModelSpec, SyntheticData
from tests.support.commands import ROOT

CONFIGS = yaml.safe_load((ROOT / "tests/data/vision_models.yaml").read_text())["models"]
"""``model_type`` -> its configuration."""

ANY_SIZE = ("qwen", "glm", "mistral3")
"""What the names of families begin with whose images may have any size."""


def tiny_vision_model(family: str, **config: Any) -> ModelSpec:
    """A model of two layers on each side; ``config`` replaces keys of its configuration."""
    return ModelSpec(
        task="image-text-to-text", architecture=family, config={**CONFIGS[family], **config}
    )


def tiny_images(family: str, **fields: Any) -> SyntheticData:
    """Images of 32 pixels with texts of 40 tokens, images included."""
    size = 32 if family.startswith(ANY_SIZE) else None
    return SyntheticData(**{"sequence_length": 40, "samples": 8, "image_size": size, **fields})
