"""Which weights an example trains, and in which formats they and the arithmetic are."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.breadth.draft import Draft
from tests.benchmarks.breadth.example import Example

_LORA = {
    "lora_r": "r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "lora_modules_to_save": "modules_to_save",
    "lora_target_parameters": "target_parameters",
    "peft_layers_to_transform": "layers_to_transform",
    "peft_layers_pattern": "layers_pattern",
    "peft_init_lora_weights": "init_lora_weights",
}
"""Key of axolotl -> field of PEFT's LoraConfig."""
_LORA_SWITCHES = {
    "lora_fan_in_fan_out": "fan_in_fan_out",
    "peft_use_dora": "use_dora",
    "peft_use_rslora": "use_rslora",
}


def translate_weights(example: Example, draft: Draft) -> None:
    """The adapter, its base, and the precision."""
    adapter = example.take("adapter")
    has_base = _translate_adapter(example, draft, adapter)
    precision = _precision(example, draft, has_frozen_base=has_base)
    if precision:
        draft.axes["precision"] = precision


def _translate_adapter(example: Example, draft: Draft, adapter: Any) -> bool:
    """Whether there is a frozen base, after writing it and the adapter."""
    parameters = _lora_parameters(example)
    in_4_bits = example.is_on("load_in_4bit")
    in_8_bits = example.is_on("load_in_8bit")
    options = dict(example.take("bnb_config_kwargs") or {})
    quantizes_experts = example.is_on("quantize_moe_experts")
    if adapter is None:
        if in_4_bits or in_8_bits:
            draft.miss("base: quantized weights that are trained without an adapter")
        return False
    if adapter not in ("lora", "qlora"):
        draft.miss(f"adapter: {adapter}")
        return False
    draft.axes["adapter"] = {"lora": parameters}
    if quantizes_experts:
        options["quantize_experts"] = True
    # axolotl upcasts for the quantized training, and then casts norms and embeddings back.
    if in_4_bits:
        draft.axes["base"] = {"bnb_4bit": {"upcast": False, **options}}
    elif in_8_bits:
        draft.axes["base"] = {"bnb_8bit": {"upcast": False, **options}}
    else:
        draft.axes["base"] = "16bit"
    return True


def _lora_parameters(example: Example) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for key, field in _LORA.items():
        value = example.take(key)
        if value is not None:
            parameters[field] = value
    for key, field in _LORA_SWITCHES.items():
        if example.is_on(key):
            parameters[field] = True
    modules = example.take("lora_target_modules")
    if example.is_on("lora_target_linear"):
        parameters["target_modules"] = "all-linear"
    elif modules is not None:
        parameters["target_modules"] = modules
    if "lora_dropout" in parameters:
        parameters["lora_dropout"] = float(parameters["lora_dropout"])
    return parameters


def _precision(example: Example, draft: Draft, *, has_frozen_base: bool) -> str:
    """The value of our axis; empty where we have none."""
    # "auto" is bf16 wherever the GPU has it.
    is_bf16 = any([example.is_on("bf16"), example.is_on("bfloat16")])
    is_fp16 = example.is_on("fp16")
    has_fp16_weights = example.is_on("float16")
    example.ignore("torch_dtype")
    allows_tf32 = example.is_on("tf32")
    if has_fp16_weights or (is_fp16 and not is_bf16):
        draft.miss("precision: weights in fp16")
        return ""
    if not is_bf16:
        return "tf32" if allows_tf32 else "fp32"
    # axolotl loads all weights in bf16; with an adapter our base axis says so.
    name = "bf16" if has_frozen_base else "bf16_weights"
    if allows_tf32:
        name += "_tf32"
    return name
