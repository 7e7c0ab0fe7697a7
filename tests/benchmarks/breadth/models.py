"""The model of an example: the architecture of transformers that its name stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from transformers.models.auto import modeling_auto

from tests.benchmarks.breadth.draft import Draft
from tests.benchmarks.breadth.example import Example

ARCHITECTURES: Sequence[tuple[str, str]] = (
    (r"voxtral", "voxtral"),
    (r"llama-3\.2-11b-vision", "mllama"),
    (r"llama-4", "llama4"),
    (r"llava", "llava"),
    (r"pixtral", "llava"),
    (r"smolvlm", "smolvlm"),
    (r"internvl", "internvl"),
    (r"paddleocr", "paddleocr_vl"),
    (r"qwen2\.5-vl", "qwen2_5_vl"),
    (r"qwen2-vl", "qwen2_vl"),
    (r"qwen3\.5.*-a\d+b", "qwen3_5_moe"),
    (r"qwen3\.5", "qwen3_5"),
    (r"qwen3-next", "qwen3_next"),
    (r"qwen3-.*-a\d+b", "qwen3_moe"),
    (r"qwen3|plano", "qwen3"),
    (r"qwen1\.5-moe", "qwen2_moe"),
    (r"qwen2|cogito.*qwen|deepcoder", "qwen2"),
    (r"gemma-4-12b", "gemma4_unified"),
    (r"gemma-4", "gemma4"),
    (r"gemma-3n", "gemma3n"),
    (r"gemma-3-(1b|270m)", "gemma3_text"),
    (r"gemma-3", "gemma3"),
    (r"gemma-2", "gemma2"),
    (r"gemma", "gemma"),
    (r"mistral-small-4", "mistral4"),
    (r"ministral-3", "mistral3"),
    (r"ministral", "ministral"),
    (r"mistral-small-3|mistral-medium|magistral-small-2509", "mistral3"),
    (r"mistral|devstral|magistral", "mistral"),
    (r"glm-4\.7-flash", "glm4_moe_lite"),
    (r"glm-4\.6v", "glm4v"),
    (r"glm-4\.5", "glm4_moe"),
    (r"glm-4-", "glm4"),
    (r"gpt-oss", "gpt_oss"),
    (r"lfm2-vl", "lfm2_vl"),
    (r"lfm2-8b-a1b", "lfm2_moe"),
    (r"lfm2", "lfm2"),
    (r"nemotron-3", "nemotron_h"),
    (r"nemotron-mini", "nemotron"),
    (r"falcon-h1", "falcon_h1"),
    (r"falcon", "falcon"),
    (r"granite-4", "granitemoehybrid"),
    (r"command-r7b", "cohere2"),
    (r"phi-3", "phi3"),
    (r"phi-", "phi"),
    (r"pythia|redpajama-incite", "gpt_neox"),
    (r"gpt-j", "gptj"),
    (r"cerebras-gpt", "gpt2"),
    (r"mpt-", "mpt"),
    (r"starcoder2", "starcoder2"),
    (r"stablelm-2", "stablelm"),
    (r"jamba", "jamba"),
    (r"mamba", "mamba"),
    (r"kimi-linear", "kimi_linear"),
    (r"seed-oss", "seed_oss"),
    (r"olmo-3", "olmo3"),
    (r"afm-", "arcee"),
    (r"trinity", "afmoe"),
    (r"apertus", "apertus"),
    (r"hunyuan", "hunyuan_v1_dense"),
    (r"llama|yi-34b|orpheus|smollm|xgen", "llama"),
)
"""Pattern in the name of a model, in lower case -> its architecture. The first one counts."""


def translate_model(example: Example, draft: Draft) -> None:
    """The model, with random weights where transformers has its architecture."""
    name = str(example.take("base_model"))
    draft.model["task"] = _task(example)
    architecture = architecture_of(name)
    brings_code = example.is_on("trust_remote_code")
    if architecture:
        draft.model["architecture"] = architecture
        _note_other_classes(draft, architecture)
    elif brings_code:
        draft.model |= {"name_or_path": name, "trust_remote_code": True}
    else:
        draft.miss(f"model: no architecture known for {name}")
    _translate_overrides(example, draft)


def _note_other_classes(draft: Draft, architecture: str) -> None:
    """A reason if transformers has no class of the architecture for the task of the example."""
    if architecture in _mapping(draft.model["task"]):
        return
    # Trained on texts alone, such a model is built with its vision tower, as axolotl builds it.
    if architecture not in _mapping("image-text-to-text"):
        draft.miss(f"model: no task of ours has a class for {architecture}")


def _mapping(task: str) -> Mapping[str, str]:
    """Architecture -> class, of the Auto class that our trials take for a task."""
    if task == "image-text-to-text":
        return modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    return modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


def architecture_of(name: str) -> str:
    """The architecture of a model by its name; empty if it is not in the table."""
    for pattern, architecture in ARCHITECTURES:
        if re.search(pattern, name.lower()):
            return architecture
    return ""


def _task(example: Example) -> str:
    # axolotl takes a processor for models that read more than text.
    if example.take("processor_type"):
        return "image-text-to-text"
    return "causal-lm"


def _translate_overrides(example: Example, draft: Draft) -> None:
    """Keys that change the configuration of the model."""
    overrides = example.take("model_config") or {}
    if overrides:
        draft.model["config"] = dict(overrides)
    # Added tokens make the vocabulary larger; our key for its size takes any number.
    example.ignore("tokens", "resize_token_embeddings_to_32x")
