"""Images of each family: how many tokens they get, by the configuration alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from jobs.finetuning.vision.image_layouts import (
    FAMILIES,
    ImageLayoutError,
    Read,
    UnknownValueError,
    layout_of,
)

# As published: Qwen/Qwen2.5-VL-3B-Instruct, HuggingFaceTB/SmolVLM2-2.2B-Instruct,
# llava-hf/llava-1.5-7b-hf and google/gemma-3-4b-it.
QWEN = {
    "vision_config.patch_size": 14,
    "vision_config.spatial_merge_size": 2,
    "vision_config.temporal_patch_size": 2,
    "vision_config.in_channels": 3,
}
SMOLVLM = {"vision_config.image_size": 384, "vision_config.patch_size": 14, "scale_factor": 3}
LLAVA = {
    "vision_config.image_size": 336,
    "vision_config.patch_size": 14,
    "vision_config.model_type": "clip_vision_model",
}


def reader(values: Mapping[str, Any]) -> Read:
    return values.get


def test_layout_of_patches_is_the_nearest_whole_number_of_them() -> None:
    layout = layout_of("qwen2_5_vl", reader(QWEN), 672)
    assert layout.image_tokens == 24**2
    assert layout.pixel_values == (48**2, 3 * 2 * 14 * 14)
    assert layout.sizes == {"image_grid_thw": (1, 48, 48)}
    assert layout_of("qwen2_5_vl", reader(QWEN), 685) == layout
    assert layout_of("qwen2_5_vl", reader(QWEN), 687).image_tokens == 25**2


def test_layout_of_tiles_has_the_whole_image_once_more() -> None:
    single = layout_of("smolvlm", reader(SMOLVLM), None)
    assert (single.image_tokens, single.pixel_values) == (81, (1, 3, 384, 384))
    # Sixteen tiles and the whole image, each between tokens that name it.
    many = layout_of("smolvlm", reader(SMOLVLM), 4 * 384)
    assert (many.image_tokens, many.pixel_values[0]) == (17 * 81, 17)
    assert many.tokens == 16 * (81 + 2) + 3 + (81 + 3) + 1


@pytest.mark.parametrize(("strategy", "tokens"), [("default", 576), ("full", 577)])
def test_layout_of_llava_leaves_the_class_token_out_by_default(strategy: str, tokens: int) -> None:
    values = {**LLAVA, "vision_feature_select_strategy": strategy}
    assert layout_of("llava", reader(values), None).image_tokens == tokens


@pytest.mark.parametrize(
    ("family", "values", "side", "reason"),
    [
        ("llava", LLAVA, 448, "llava has images of 336 pixels a side, not 448"),
        ("qwen2_vl", QWEN, None, "qwen2_vl takes images of any size: set"),
        (
            "llava",
            {**LLAVA, "vision_config.model_type": "pixtral"},
            None,
            "llava has a vision tower of pixtral",
        ),
        ("mllama", {}, 448, f"cannot be made for mllama, .*{', '.join(FAMILIES)}"),
    ],
)
def test_layout_that_is_not_known_is_refused_in_a_sentence(
    family: str, values: Mapping[str, Any], side: int | None, reason: str
) -> None:
    with pytest.raises(ImageLayoutError, match=reason):
        layout_of(family, reader(values), side)


def test_layout_from_an_unknown_value_says_which() -> None:
    with pytest.raises(UnknownValueError, match=r"gemma3 has an unknown vision_config\.image_size"):
        layout_of("gemma3", reader({}), None)
