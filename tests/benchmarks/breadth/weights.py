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


_QAT = {
    ("int8", "int4"): "int8_int4",
    (None, "int4"): "int4",
    ("fp8", "fp8"): "fp8",
    ("fp8", "int4"): "fp8_int4",
    ("mxfp4", "mxfp4"): "mxfp4",
    ("nvfp4", "nvfp4"): "nvfp4",
}
"""Formats of inputs and weights -> the value of our axis qat."""


def translate_weights(example: Example, draft: Draft) -> None:
    """The adapter, its base, and the precision."""
    adapter = example.take("adapter")
    has_base = _translate_adapter(example, draft, adapter)
    precision = _precision(example, draft, has_frozen_base=has_base)
    if precision:
        draft.axes["precision"] = precision
    if precision == "fp16" and has_base:
        _set_fp16_base(draft)
    _translate_rounding(example, draft)
    _translate_own_weights(example, draft)


def _set_fp16_base(draft: Draft) -> None:
    """The frozen base in fp16, as axolotl loads it without bf16."""
    base = draft.axes["base"]
    if base == "16bit":
        draft.axes["base"] = "16bit_fp16"
        return
    if not isinstance(base, dict):
        draft.miss("base: a dequantized checkpoint in fp16")
        return
    for parameters in base.values():
        parameters["dtype"] = "float16"


def _translate_rounding(example: Example, draft: Draft) -> None:
    """Training for a quantization to come, with torchao as axolotl has it."""
    qat = example.take("qat")
    if not qat:
        return
    formats = (qat.get("activation_dtype"), qat.get("weight_dtype"))
    scheme = _QAT.get(formats)
    if scheme is None or qat.get("quantize_embedding") or qat.get("fake_quant_after_n_steps"):
        draft.miss(f"training: for a quantization to come, {qat}")
    elif scheme in ("int8_int4", "int4"):
        draft.axes["qat"] = {scheme: {"group_size": int(qat.get("group_size", 32))}}
    else:
        draft.axes["qat"] = scheme


def _translate_own_weights(example: Example, draft: Draft) -> None:
    """A part of the model's own weights, by regular expressions."""
    patterns = example.take("unfrozen_parameters")
    if not patterns:
        return
    if "adapter" in draft.axes:
        # axolotl matches the names of the adapted model, which begin with "base_model.". So these
        # patterns match none, and it freezes the adapter, too.
        draft.miss("training: unfrozen_parameters beside an adapter, which freezes all in axolotl")
        return
    draft.axes["trainable"] = {"matching": {"patterns": list(patterns)}}


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
        if _is_dequantized(example, draft):
            draft.miss("base: a dequantized checkpoint that is trained without an adapter")
        return False
    if adapter not in ("lora", "qlora"):
        draft.miss(f"adapter: {adapter}")
        return False
    draft.axes["adapter"] = {"lora": parameters}
    is_dequantized = _is_dequantized(example, draft)
    if quantizes_experts:
        options["quantize_experts"] = True
        if "target_parameters" in parameters:
            draft.miss("adapter: LoRA of experts that are in 4 bits")
    # axolotl upcasts for the quantized training, and then casts norms and embeddings back.
    if in_4_bits:
        draft.axes["base"] = {"bnb_4bit": {"upcast": False, **options}}
    elif in_8_bits:
        draft.axes["base"] = {"bnb_8bit": {"upcast": False, **options}}
    elif is_dequantized:
        draft.axes["base"] = "dequantized"
    else:
        draft.axes["base"] = "16bit"
    return True


def _is_dequantized(example: Example, draft: Draft) -> bool:
    """Whether a checkpoint in MXFP4 or FP8 becomes bf16 when it is loaded."""
    kind = example.take("model_quantization_config")
    options = example.take("model_quantization_config_kwargs") or {}
    if kind is None:
        return False
    is_known = kind in ("Mxfp4Config", "FineGrainedFP8Config")
    if not is_known or options != {"dequantize": True}:
        draft.miss(f"base: {kind} with {options}")
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
    loftq = (example.take("peft") or {}).get("loftq_config")
    if loftq:
        parameters |= {"init_lora_weights": "loftq", "loftq_config": dict(loftq)}
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
    if not is_bf16 and (has_fp16_weights or is_fp16):
        return _precision_in_fp16(draft, has_autocast=is_fp16, has_frozen_base=has_frozen_base)
    if not is_bf16:
        return "tf32" if allows_tf32 else "fp32"
    # axolotl loads all weights in bf16; with an adapter our base axis says so.
    name = "bf16" if has_frozen_base else "bf16_weights"
    if allows_tf32:
        name += "_tf32"
    return name


def _precision_in_fp16(draft: Draft, *, has_autocast: bool, has_frozen_base: bool) -> str:
    """The value of our axis for weights that axolotl loads in fp16; empty where we have none."""
    if has_autocast and has_frozen_base:
        return "fp16"
    if has_autocast:
        # torch.amp.GradScaler raises: it does not unscale gradients in fp16.
        draft.miss("precision: fp16 autocast and loss scaling over weights in fp16")
        return ""
    if has_frozen_base:
        draft.miss("precision: an adapter without autocast on weights in fp16")
        return ""
    return "fp16_weights"
