"""Base axis: the number format of the weights that are frozen while an adapter is trained."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from jobs.spec import Hook
from jobs.techniques.base import Axis, Family, Variant
from jobs.techniques.hooks import hook

if TYPE_CHECKING:
    import torch

_CONFIG_CLASS = "transformers.utils.quantization_config:BitsAndBytesConfig"
_UPCAST = {"upcast": "bool"}
"""A parameter that the library's class does not have: whether the weights that are not quantized
are cast to 32 bits, as ``peft.prepare_model_for_kbit_training`` does. The default is true."""
_4_BIT_VALUES = {
    "bnb_4bit_quant_type": "Literal['nf4', 'fp4']",
    "bnb_4bit_compute_dtype": "Literal['bfloat16', 'float16', 'float32']",
    "bnb_4bit_quant_storage": "Literal['uint8', 'bfloat16', 'float16', 'float32']",
}
"""Parameter of 4 bits -> the values that work. The library takes any text, and fails later."""
_BITS_DECIDED = "the name of the technique decides it"


def _quantized(doc: str, base_hook: Hook, package: str) -> Variant:
    return Variant(
        doc=doc,
        hooks={"base": base_hook},
        requires=(f"package:{package}", "package:peft", "bf16"),
        numerical_effect="training",
        traits=("frozen_base", "quantized_base"),
    )


def _bitsandbytes(method: str, doc: str, parameters: Mapping[str, Any]) -> Variant:
    """The row of a method of ``quantized_base``."""
    arguments = {"method": method, "parameters": dict(parameters)}
    return _quantized(doc, Hook("quantized_base", arguments), "bitsandbytes")


def _family(method: str, doc: str, decided: Mapping[str, str], values: Mapping[str, str]) -> Family:
    """``decided`` and ``values`` are those of this method alone; see ``Family``."""
    always_decided = {
        "load_in_4bit": _BITS_DECIDED,
        "load_in_8bit": _BITS_DECIDED,
        "llm_int8_enable_fp32_cpu_offload": "the whole model is on the GPU",
        "llm_int8_has_fp16_weight": "the base is frozen, so it needs no 16-bit copy",
        "quant_method": _BITS_DECIDED,
    }
    return Family(
        doc=doc,
        config_class=_CONFIG_CLASS,
        build=functools.partial(_bitsandbytes, method, doc),
        decided={**always_decided, **decided},
        extra={**_UPCAST, **values},
    )


_DOCS = {
    "bnb_8bit": "LLM.int8() of bitsandbytes: linear layers in 8 bits, and outlier features in 16",
    "bnb_4bit": "QLoRA's base of bitsandbytes: linear layers in 4 bits (NF4, double quantization), "
    "computed in bf16",
}
_ONLY_4_BIT = "it is a parameter of bnb_4bit"

BASE = Axis(
    name="base",
    doc="Number format of the weights that are frozen while an adapter is trained",
    default="default",
    variants={
        "default": Variant(doc="The format that the axis `precision` sets"),
        "16bit": Variant(
            doc="Weights of the model in bf16, and weights of the adapter in 32 bits",
            hooks={"base": Hook("bf16_base")},
            requires=("bf16",),
            numerical_effect="rounding",
            traits=("frozen_base",),
        ),
        **{method: _bitsandbytes(method, doc, {}) for method, doc in _DOCS.items()},
        "torchao_int8": _quantized(
            "Linear layers in 8 bits by torchao's weight-only quantization",
            Hook("torchao_int8_base"),
            "torchao",
        ),
    },
    families={
        "bnb_8bit": _family(
            "bnb_8bit",
            "bnb_8bit with parameters of BitsAndBytesConfig",
            {
                "bnb_4bit_compute_dtype": _ONLY_4_BIT,
                "bnb_4bit_quant_storage": _ONLY_4_BIT,
                "bnb_4bit_quant_type": _ONLY_4_BIT,
                "bnb_4bit_use_double_quant": _ONLY_4_BIT,
            },
            {},
        ),
        "bnb_4bit": _family(
            "bnb_4bit",
            "bnb_4bit with parameters of BitsAndBytesConfig; upcast: false keeps weights that are "
            "not quantized in 16 bits",
            {"llm_int8_threshold": "it is a parameter of bnb_8bit"},
            _4_BIT_VALUES,
        ),
    },
)


@hook("bf16_base")
def bf16_base(
    make: Callable[..., torch.nn.Module], is_checkpoint: bool, device: torch.device
) -> torch.nn.Module:
    """The model that ``make`` returns, on ``device``, with all its weights in bf16.

    ``make`` is ``from_pretrained`` or ``from_config`` with all its arguments.
    """
    import torch

    if is_checkpoint:
        return make(dtype=torch.bfloat16).to(device)
    # Random weights are drawn directly on the device.
    with device:
        model = make(dtype=torch.bfloat16)
    return model.to(device)


@hook("quantized_base")
def quantized_base(
    make: Callable[..., torch.nn.Module],
    is_checkpoint: bool,
    device: torch.device,
    *,
    method: str,
    parameters: Mapping[str, Any],
) -> torch.nn.Module:
    """The model that ``make`` returns, on ``device``, quantized by bitsandbytes and frozen.

    ``make`` is ``from_pretrained`` or ``from_config`` with all its arguments. The output layer is
    not quantized. Weights that are not quantized have 16 bits, or 32 if the parameter ``upcast`` is
    true.
    """
    import transformers
    from peft import prepare_model_for_kbit_training

    options = dict(parameters)
    is_upcast = options.pop("upcast", True)
    if method == "bnb_8bit":
        config = transformers.BitsAndBytesConfig(load_in_8bit=True, **options)
    else:
        # The QLoRA paper's own choices (Dettmers et al. 2023, section 3).
        qlora = {
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": True,
            "bnb_4bit_compute_dtype": "bfloat16",
        }
        config = transformers.BitsAndBytesConfig(load_in_4bit=True, **{**qlora, **options})
    model = _frozen(make, is_checkpoint, device, config)
    if is_upcast:
        # Checkpointing is off here, because the training loop turns it on if the trial asks for it.
        prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return model


@hook("torchao_int8_base")
def torchao_int8_base(
    make: Callable[..., torch.nn.Module], is_checkpoint: bool, device: torch.device
) -> torch.nn.Module:
    """The model that ``make`` returns, on ``device``, with 8-bit linear layers, and frozen."""
    import transformers
    from torchao.quantization import Int8WeightOnlyConfig

    config = transformers.TorchAoConfig(Int8WeightOnlyConfig())
    return _frozen(make, is_checkpoint, device, config)


def _frozen(
    make: Callable[..., torch.nn.Module], is_checkpoint: bool, device: torch.device, config: Any
) -> torch.nn.Module:
    """The frozen model, quantized by ``config``; weights that are not quantized have 16 bits.

    transformers quantizes a checkpoint while it loads it. Random weights are quantized layer by
    layer, so that at most one layer with 16 bits is in memory.
    """
    import torch

    if is_checkpoint:
        model = make(dtype=torch.bfloat16, quantization_config=config, device_map={"": device})
    else:
        model = _quantized_at_random(make, config, device)
    return model.requires_grad_(False)


def _quantized_at_random(
    make: Callable[..., torch.nn.Module], config: Any, device: torch.device
) -> torch.nn.Module:
    """A model with random weights, quantized by the quantizer of transformers."""
    import torch
    from transformers import initialization
    from transformers.quantizers.auto import AutoHfQuantizer

    with torch.device("meta"):
        model: Any = make(dtype=torch.bfloat16)
    quantizer = AutoHfQuantizer.from_config(config, pre_quantized=False)
    quantizer.validate_environment(device_map={"": device})
    quantizer.preprocess_model(model, dtype=model.dtype, device_map={"": device})
    with torch.no_grad(), initialization.guard_torch_init_functions():
        for layer, owner, prefix in _layers(model):
            replaced = _drawn(layer, owner, model.dtype, device)
            _quantize(layer, prefix, replaced, model, quantizer)
    # A weight that two modules share was drawn twice, so it is tied again.
    model.tie_weights()
    model.hf_quantizer = quantizer
    quantizer.postprocess_model(model)
    model.train()
    quantized: torch.nn.Module = model
    return quantized


def _layers(model: Any) -> Iterator[tuple[Any, Any, str]]:
    """The layers of all module lists, then the whole model.

    Each comes with the model whose ``_init_weights`` draws its weights, and with the prefix of its
    name. A list inside a layer is part of that layer.
    """
    from torch.nn import ModuleList
    from transformers import PreTrainedModel

    waiting = [(model, model, "")]
    while waiting:
        module, owner, prefix = waiting.pop()
        for name, child in module.named_children():
            full_name = f"{prefix}{name}."
            # A part that is a transformers model, such as an encoder, has its own
            # ``_init_weights``.
            child_owner = child if isinstance(child, PreTrainedModel) else owner
            if isinstance(module, ModuleList):
                yield child, child_owner, full_name
            else:
                waiting.append((child, child_owner, full_name))
    yield model, model, ""


def _drawn(
    module: Any, owner: Any, dtype: torch.dtype, device: torch.device
) -> dict[tuple[Any, str], Any]:
    """Draw the random weights of a module on the device, those of its children first.

    Tensors that are not on the meta device stay. Returns the meta parameters that were replaced, by
    module and name: the quantizer reads from them how to quantize.
    """
    import torch
    from transformers import PreTrainedModel

    replaced: dict[tuple[Any, str], Any] = {}
    for child in module.children():
        child_owner = child if isinstance(child, PreTrainedModel) else owner
        replaced |= _drawn(child, child_owner, dtype, device)
    parameters = dict(module.named_parameters(recurse=False))
    buffers = dict(module.named_buffers(recurse=False))
    empty = [tensor for tensor in (*parameters.values(), *buffers.values()) if tensor.is_meta]
    for name, parameter in parameters.items():
        if parameter.is_meta:
            # A quantizer creates its layers in 32 bits, but their weights have the model's dtype.
            kind = dtype if hasattr(module, "source_cls") else parameter.dtype
            values = torch.empty(parameter.shape, dtype=kind, device=device)
            replaced[module, name] = parameter
            module._parameters[name] = torch.nn.Parameter(values, requires_grad=False)
    for name, buffer in buffers.items():
        if buffer.is_meta:
            module._buffers[name] = torch.empty_like(buffer, device=device)
    if empty:
        owner._init_weights(module)
    return replaced


def _quantize(
    layer: Any, prefix: str, replaced: Mapping[tuple[Any, str], Any], model: Any, quantizer: Any
) -> None:
    """Quantize those weights of a layer that the quantizer supports."""
    import torch
    from transformers.pytorch_utils import Conv1D

    operation = quantizer.get_quantize_ops()
    for module_name, module in layer.named_modules(prefix=prefix.rstrip(".")):
        for name in [name for owner, name in replaced if owner is module]:
            full_name = f"{module_name}.{name}".lstrip(".")
            if not quantizer.param_needs_quantization(model, full_name):
                continue
            values = module._parameters[name].data
            if issubclass(getattr(module, "source_cls", torch.nn.Linear), Conv1D):
                values = values.T  # the quantizer expects the layout of a Conv1D's checkpoint
            module._parameters[name] = replaced[module, name]
            packed = operation.convert(
                {full_name: values}, full_layer_name=full_name, model=model, missing_keys=set()
            )
            for packed_name, tensor in packed.items():
                module._parameters[packed_name.rpartition(".")[2]] = tensor
