"""Hooks that make a model with a quantized base: by bitsandbytes or torchao, and frozen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from jobs.techniques.hooks import hook

if TYPE_CHECKING:
    import torch

BITSANDBYTES = "quantized_base"
TORCHAO = "torchao_int8_base"


@hook(BITSANDBYTES)
def quantized_base(
    make: Callable[..., torch.nn.Module],
    is_checkpoint: bool,
    device: torch.device,
    *,
    method: str,
    parameters: Mapping[str, Any],
) -> torch.nn.Module:
    """The model that ``make`` makes, on ``device``, quantized by bitsandbytes and frozen.

    ``make`` is ``from_pretrained`` or ``from_config`` with all its arguments. The output layer is
    not quantized. What is not quantized is in 16 bits, or in 32 where the parameter ``upcast`` is
    true.
    """
    import transformers
    from peft import prepare_model_for_kbit_training

    options = dict(parameters)
    is_upcast = options.pop("upcast", True)
    if outside := _outside_language_model(make):
        options.setdefault("llm_int8_skip_modules", outside)
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
        # The training loop turns checkpointing on, if it is asked for.
        prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return model


@hook(TORCHAO)
def torchao_int8_base(
    make: Callable[..., torch.nn.Module], is_checkpoint: bool, device: torch.device
) -> torch.nn.Module:
    """The model that ``make`` makes, on ``device``, with 8-bit linear layers, and frozen."""
    import transformers
    from torchao.quantization import Int8WeightOnlyConfig

    outside = _outside_language_model(make)
    config = transformers.TorchAoConfig(
        Int8WeightOnlyConfig(), modules_to_not_convert=outside or None
    )
    return _frozen(make, is_checkpoint, device, config)


def _outside_language_model(make: Callable[..., torch.nn.Module]) -> list[str]:
    """The linear layers of a vision-language model that stay in 16 bits; empty for other models.

    These are its vision tower, its projector and its output layer.
    """
    import torch

    partial: Any = make
    config = partial.keywords.get("config") or partial.args[0]
    if not hasattr(config, "vision_config"):
        return []
    with torch.device("meta"):
        model = partial.func.__self__.from_config(config)
    inside = {id(module) for module in model.get_decoder().modules()}
    names = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and id(module) not in inside:
            names.append(name)
    return names


def _frozen(
    make: Callable[..., torch.nn.Module], is_checkpoint: bool, device: torch.device, config: Any
) -> torch.nn.Module:
    """The model, quantized as the configuration says; all else of it is in 16 bits.

    A checkpoint is quantized as transformers loads it. Random weights are quantized layer by layer,
    so that the device never holds more than one layer in 16 bits.
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
    """A model of random weights, made by the quantizer through which transformers loads."""
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
    # A weight that two modules share was drawn for both.
    model.tie_weights()
    model.hf_quantizer = quantizer
    quantizer.postprocess_model(model)
    model.train()
    quantized: torch.nn.Module = model
    return quantized


def _layers(model: Any) -> Iterator[tuple[Any, Any, str]]:
    """The layers of all lists of layers, then the whole model.

    Each comes with the model whose ``_init_weights`` draws its weights, and with its name. A list
    inside a layer is part of that layer.
    """
    from torch.nn import ModuleList
    from transformers import PreTrainedModel

    waiting = [(model, model, "")]
    while waiting:
        module, owner, prefix = waiting.pop()
        for name, child in module.named_children():
            full_name = f"{prefix}{name}."
            # A part that is a model of its own draws its weights in its own way.
            child_owner = child if isinstance(child, PreTrainedModel) else owner
            if isinstance(module, ModuleList):
                yield child, child_owner, full_name
            else:
                waiting.append((child, child_owner, full_name))
    yield model, model, ""


def _drawn(
    module: Any, owner: Any, dtype: torch.dtype, device: torch.device
) -> dict[tuple[Any, str], Any]:
    """Draw a module's weights on the device, children first; tensors that exist stay.

    Returns the empty parameters that were replaced, by their module and name: they say how to
    quantize.
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
            # A quantizer's layer is made in 32 bits; its weight has the model's dtype.
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
    """Quantize the weights of a layer that the quantizer is made for."""
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
                values = values.T  # the quantizer expects it as a checkpoint of Conv1D has it
            module._parameters[name] = replaced[module, name]
            packed = operation.convert(
                {full_name: values}, full_layer_name=full_name, model=model, missing_keys=set()
            )
            for packed_name, tensor in packed.items():
                module._parameters[packed_name.rpartition(".")[2]] = tensor
