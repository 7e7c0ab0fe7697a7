"""A tiny vision-language model of each family, and what its images are."""

from collections.abc import Mapping
from typing import Any

from jobs.spec import ModelSpec, SyntheticData

_TEXT: Mapping[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_MROPE = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
_HALF_ROPE = {**_MROPE, "mrope_section": [1, 1, 2], "partial_rotary_factor": 0.5}
_VIT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}
_QWEN_VIT = {
    "depth": 2,
    "num_heads": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "patch_size": 8,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 32,
}
_QWEN_TOKENS = {
    "image_token_id": 150,
    "video_token_id": 151,
    "vision_start_token_id": 152,
    "vision_end_token_id": 153,
}
_WITH_ROPE = {**_TEXT, "rope_parameters": _MROPE}
_QWEN3_VIT = {**_QWEN_VIT, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}
_LLAMA = {"model_type": "llama", **_TEXT}
_LLAVA = {
    "text_config": _LLAMA,
    "vision_config": {"model_type": "clip_vision_model", "projection_dim": 32, **_VIT},
    "image_token_index": 150,
}
_IDEFICS = {"text_config": _LLAMA, "vision_config": _VIT, "image_token_id": 150}
_SIGLIP = {"model_type": "siglip_vision_model", "vision_use_head": False, **_VIT}
_GLM_VIT = {**_QWEN_VIT, "image_size": 32}

CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "qwen2_vl": {
        "text_config": _WITH_ROPE,
        "vision_config": {
            "depth": 2,
            "num_heads": 2,
            "embed_dim": 32,
            "hidden_size": 32,
            "patch_size": 8,
        },
        **_QWEN_TOKENS,
    },
    "qwen2_5_vl": {
        "text_config": _WITH_ROPE,
        "vision_config": {**_QWEN_VIT, "window_size": 32, "fullatt_block_indexes": [1]},
        **_QWEN_TOKENS,
    },
    "qwen3_vl": {
        "text_config": {**_WITH_ROPE, "head_dim": 16},
        "vision_config": _QWEN3_VIT,
        **_QWEN_TOKENS,
    },
    "qwen3_vl_moe": {
        "text_config": {
            **_WITH_ROPE,
            "head_dim": 16,
            "moe_intermediate_size": 32,
            "num_experts": 4,
            "num_experts_per_tok": 2,
        },
        "vision_config": _QWEN3_VIT,
        **_QWEN_TOKENS,
    },
    "glm4v": {
        "text_config": {**_TEXT, "rope_parameters": _HALF_ROPE},
        "vision_config": _GLM_VIT,
        "image_token_id": 150,
        "video_token_id": 151,
        "image_start_token_id": 152,
        "image_end_token_id": 153,
        "video_start_token_id": 154,
        "video_end_token_id": 155,
    },
    "llava": {**_LLAVA, "vision_feature_layer": -1},
    "vipllava": {**_LLAVA, "vision_feature_layers": [-1, -2]},
    "paligemma": {
        "text_config": {"model_type": "gemma", "head_dim": 16, **_TEXT},
        "vision_config": _SIGLIP,
        "image_token_index": 150,
        "projection_dim": 32,
    },
    "gemma3": {
        "text_config": {"head_dim": 16, "sliding_window": 16, **_TEXT},
        "vision_config": _SIGLIP,
        "image_token_index": 150,
        "boi_token_index": 152,
        "eoi_token_index": 153,
        "mm_tokens_per_image": 4,
    },
    "internvl": {
        "text_config": {"model_type": "qwen2", **_TEXT},
        "vision_config": {**_VIT, "image_size": [32, 32], "patch_size": [8, 8]},
        "image_token_id": 150,
    },
    "idefics3": _IDEFICS,
    "smolvlm": _IDEFICS,
    "mistral3": {
        "text_config": {"model_type": "mistral", **_TEXT},
        "vision_config": {"model_type": "pixtral", "head_dim": 16, **_VIT, "image_size": 64},
        "image_token_index": 150,
    },
}
"""``model_type`` -> its configuration."""

ANY_SIZE = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "glm4v", "mistral3")
"""Families whose images may have any size."""


def tiny_vision_model(family: str, **config: Any) -> ModelSpec:
    """A model of two layers on each side; ``config`` replaces keys of its configuration."""
    return ModelSpec(
        task="image-text-to-text", architecture=family, config={**CONFIGS[family], **config}
    )


def tiny_images(family: str, **fields: Any) -> SyntheticData:
    """Images of 32 pixels with texts of 40 tokens, images included."""
    size = 32 if family in ANY_SIZE else None
    return SyntheticData(**{"sequence_length": 40, "samples": 8, "image_size": size, **fields})
