"""The translation of axolotl's examples: what counts as expressed, and why another does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.benchmarks.breadth.example import Example
from tests.benchmarks.breadth.verdicts import Answer, judged, translated

LLAMA = {"base_model": "meta-llama/Llama-3.2-1B", "micro_batch_size": 2, "bf16": "auto"}
LORA = {"adapter": "lora", "lora_r": 8}


def example(**content: Any) -> Example:
    """An example for one GPU; None takes a key away."""
    return Example("example.yaml", {**LLAMA, **content})


@pytest.mark.parametrize(
    ("content", "axes"),
    [
        (
            {**LORA, "gradient_checkpointing": True, "activation_offloading": True},
            {"activations": "offload", "base": "16bit", "precision": "bf16"},
        ),
        ({"gradient_checkpointing": "offload"}, {"activations": "checkpoint_offload_streams"}),
        (
            {"bf16": False, "float16": True, "attn_implementation": "flash_attention_2"},
            {"precision": "fp16_weights"},
        ),
        (
            {**LORA, "bf16": False, "fp16": True, "load_in_4bit": True},
            {"precision": "fp16", "base": {"bnb_4bit": {"upcast": False, "dtype": "float16"}}},
        ),
        (
            {"qat": {"activation_dtype": "int8", "weight_dtype": "int4", "group_size": 32}},
            {"qat": {"int8_int4": {"group_size": 32}}},
        ),
        (
            {"unfrozen_parameters": ["^lm_head"]},
            {"trainable": {"matching": {"patterns": ["^lm_head"]}}},
        ),
        ({"use_eaft": True, "eaft_k": 10}, {"loss": {"eaft": {"alpha": 1.0, "k": 10}}}),
        (
            {
                **LORA,
                "base_model": "openai/gpt-oss-20b",
                "model_quantization_config": "Mxfp4Config",
                "model_quantization_config_kwargs": {"dequantize": True},
                "use_kernels": True,
            },
            {"base": "dequantized", "kernels": "hub"},
        ),
        (
            {"torch_compile": True, "torch_compile_mode": "max-autotune"},
            {"compile": "inductor_max_autotune_cudagraphs"},
        ),
    ],
)
def test_example_is_expressed_by_these_axes(content: dict[str, Any], axes: dict[str, Any]) -> None:
    verdict = judged(example(**content))
    assert (verdict.answer, verdict.reasons) == (Answer.EXPRESSED, ())
    chosen = translated(example(**content)).axes
    assert {name: chosen[name] for name in axes} == axes


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({**LORA, "unfrozen_parameters": ["^lm_head"]}, "freezes all in axolotl"),
        ({"datasets": [{"path": "me/audio-test"}]}, "rows with audio"),
        ({"base_model": "mistralai/Voxtral-Mini"}, "no task of ours has a class for voxtral"),
        ({"bf16": False, "fp16": True}, "loss scaling over weights in fp16"),
        ({"qat": {"weight_dtype": "int8"}}, "for a quantization to come"),
        ({"streaming": True}, "rows that are streamed"),
        ({"no_such_key": 1}, "unknown key: no_such_key"),
        ({"gradient_checkpointing": True, "activation_offloading": "disk"}, "offloading: disk"),
    ],
)
def test_example_with_a_key_that_nothing_says_is_left(content: dict[str, Any], reason: str) -> None:
    verdict = judged(example(**content))
    assert verdict.answer is Answer.LEFT
    assert reason in "; ".join(verdict.reasons)


def test_vision_example_has_rows_with_images() -> None:
    draft = translated(example(base_model="llava-hf/llava", processor_type="AutoProcessor"))
    assert draft.data["file"]["columns"]["images"] == "images"


def test_example_for_several_gpus_is_not_counted() -> None:
    assert judged(example(fsdp_version=2, fsdp_config={"a": 1})).answer is Answer.SEVERAL_GPUS
