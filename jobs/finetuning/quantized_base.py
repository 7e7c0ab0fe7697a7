"""Hooks that build a model with a frozen base, quantized by bitsandbytes or torchao."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from jobs.techniques.hooks import hook

if TYPE_CHECKING:
    import torch

    Make = Callable[..., torch.nn.Module]

BITSANDBYTES = "quantized_base"
TORCHAO = "torchao_int8_base"


@hook(BITSANDBYTES)
def quantized_base(
    make: Make,
    is_checkpoint: bool,
    device: torch.device,
    *,
    method: str,
    parameters: Mapping[str, Any],
) -> torch.nn.Module:
    """The model that ``make`` returns, on ``device``, quantized by bitsandbytes and frozen.

    ``make`` is ``from_pretrained`` or ``from_config`` with all its arguments. Weights that are not
    quantized, such as the output layer, have 32 bits, as after PEFT's preparation, or those of the
    parameter ``dtype`` if ``upcast`` is false. ``quantize_experts`` packs the experts of a mixture
    that share one parameter; it raises ValueError if there are none.
    """
    from functools import partial

    import transformers
    from peft import prepare_model_for_kbit_training

    options = dict(parameters)
    is_upcast = options.pop("upcast", True)
    packs_experts = options.pop("quantize_experts", False)
    dtype = options.pop("dtype", "bfloat16")
    if kept := _layers_to_keep(make):
        options.setdefault("llm_int8_skip_modules", kept)
    if method == "bnb_8bit":
        config = transformers.BitsAndBytesConfig(load_in_8bit=True, **options)
    else:
        # The QLoRA paper's own choices (Dettmers et al. 2023, section 3).
        qlora = {
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": True,
            "bnb_4bit_compute_dtype": dtype,
        }
        config = transformers.BitsAndBytesConfig(load_in_4bit=True, **{**qlora, **options})
    pack = partial(_pack_experts, config=config) if packs_experts else None
    model = _frozen(make, is_checkpoint, device, config, pack=pack, dtype=dtype)
    if is_upcast:
        # Checkpointing is off here, because the training loop turns it on if the trial asks for it.
        prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return model


@hook(TORCHAO)
def torchao_int8_base(make: Make, is_checkpoint: bool, device: torch.device) -> torch.nn.Module:
    """The model that ``make`` returns, on ``device``, with 8-bit linear layers, and frozen."""
    import transformers
    from torchao.quantization import Int8WeightOnlyConfig

    kept = _layers_to_keep(make)
    config = transformers.TorchAoConfig(Int8WeightOnlyConfig(), modules_to_not_convert=kept or None)
    return _frozen(make, is_checkpoint, device, config)


def _layers_to_keep(make: Make) -> list[str]:
    """The linear layers to keep in 16 bits; empty if transformers finds them all itself. In a
    vision-language model, these are all outside the decoder. In a classifier, they are those of the
    head, which PEFT trains, and of which transformers may miss some."""
    import torch

    partial: Any = make
    auto_class = partial.func.__self__
    config = partial.keywords.get("config") or partial.args[0]
    is_vision_language = hasattr(config, "vision_config")
    if not is_vision_language and "Classification" not in auto_class.__name__:
        return []
    with torch.device("meta"):
        model = auto_class.from_config(config)
    body = model.get_decoder() if is_vision_language else model.base_model
    inside = {id(module) for module in body.modules()}
    linear = {
        name: part for name, part in model.named_modules() if isinstance(part, torch.nn.Linear)
    }
    return [name for name, part in linear.items() if id(part) not in inside]


def _pack_experts(layer: Any, config: Any) -> None:
    for path, module in list(layer.named_modules()):
        if "expert" not in f"{path} {type(module).__name__}".lower():
            continue
        for name, parameter in list(module.named_parameters(recurse=False)):
            # Three dimensions: a matrix for each expert. Biases and routers have fewer.
            if parameter.dim() == 3 and parameter.is_floating_point():
                if config.load_in_8bit:
                    _pack_in_8_bits(module, name)
                else:
                    _pack_in_4_bits(module, name, config)


def _pack_in_4_bits(module: Any, name: str, config: Any) -> None:
    from bitsandbytes.nn.parametrize import replace_parameter_4bit

    replace_parameter_4bit(
        module,
        name,
        compress_statistics=config.bnb_4bit_use_double_quant,
        quant_type=config.bnb_4bit_quant_type,
    )
    weights = module.parametrizations[name]
    # The scales are an attribute of the packed values, as in a linear layer of bitsandbytes.
    weights.original.quant_state = weights[0].quant_state


def _pack_in_8_bits(module: Any, name: str) -> None:
    """Replace a parameter by 8-bit codes with a scale per row, which are multiplied when read."""
    import torch
    from bitsandbytes import functional
    from torch.nn.utils import parametrize

    class Dequantized(torch.nn.Module):
        """The values of the codes; bitsandbytes has this for 4 bits only."""

        @torch.no_grad()
        def forward(self, codes: torch.Tensor) -> torch.Tensor:
            values: torch.Tensor = functional.int8_vectorwise_dequant(codes.flatten(0, -2), scales)
            return values.to(dtype).view(codes.shape)

    values = getattr(module, name).data
    dtype = values.dtype
    # The kernel takes fp16 only, as in LLM.int8() (Dettmers et al. 2022, section 3).
    codes, scales, _ = functional.int8_vectorwise_quant(values.half().flatten(0, -2))
    setattr(module, name, torch.nn.Parameter(codes.view(values.shape), requires_grad=False))
    parametrize.register_parametrization(module, name, Dequantized(), unsafe=True)
    module.parametrizations[name].original.SCB = scales  # its name in layers of bitsandbytes


def _frozen(
    make: Make,
    is_checkpoint: bool,
    device: torch.device,
    config: Any,
    *,
    pack: Callable[[Any], None] | None = None,
    dtype: str = "bfloat16",
) -> torch.nn.Module:
    """The frozen model, quantized by ``config``; weights that are not quantized have 16 bits.

    transformers quantizes a checkpoint while it loads it; its experts are packed after that. Random
    weights are quantized layer by layer, so that at most one layer with 16 bits is in memory.
    ``pack`` packs the experts in a layer: an argument, so that an exported training has no source
    of it without need.
    """
    import torch
    from torch.nn.utils.parametrize import is_parametrized

    kind = getattr(torch, dtype)
    if is_checkpoint:
        model = make(dtype=kind, quantization_config=config, device_map={"": device})
        if pack is not None:
            pack(model)
    else:
        model = _quantized_at_random(make, kind, config, device, pack)
    if pack is not None and not any(map(is_parametrized, model.modules())):
        raise ValueError(
            f"{type(model).__name__} does not support quantize_experts: no experts share one "
            "parameter"
        )
    return model.requires_grad_(False)


def _quantized_at_random(
    make: Make,
    dtype: torch.dtype,
    config: Any,
    device: torch.device,
    pack: Callable[[Any], None] | None,
) -> torch.nn.Module:
    import torch
    from transformers import initialization
    from transformers.quantizers.auto import AutoHfQuantizer

    with torch.device("meta"):
        model: Any = make(dtype=dtype)
    quantizer = AutoHfQuantizer.from_config(config, pre_quantized=False)
    quantizer.validate_environment(device_map={"": device})
    quantizer.preprocess_model(model, dtype=model.dtype, device_map={"": device})
    with torch.no_grad(), initialization.guard_torch_init_functions():
        for layer, owner, prefix in _layers(model):
            replaced = _drawn(layer, owner, model.dtype, device)
            _quantize(layer, prefix, replaced, model, quantizer)
            if pack is not None:
                pack(layer)
    # A weight that two modules share was drawn twice, so it is tied again.
    model.tie_weights()
    model.hf_quantizer = quantizer
    quantizer.postprocess_model(model)
    return model.train()


def _layers(model: Any) -> Iterator[tuple[Any, Any, str]]:
    """The layers of all outermost lists of layers, then the whole model. Each comes with the model
    whose ``_init_weights`` draws its weights, and with its name."""
    from torch.nn import ModuleList
    from transformers import PreTrainedModel

    waiting = [(model, model, "")]
    while waiting:
        module, owner, prefix = waiting.pop()
        for name, child in module.named_children():
            full_name = f"{prefix}{name}."
            # A part such as an encoder has its own ``_init_weights``.
            child_owner = child if isinstance(child, PreTrainedModel) else owner
            if isinstance(module, ModuleList):
                yield child, child_owner, full_name
            else:
                waiting.append((child, child_owner, full_name))
    yield model, model, ""


def _drawn(
    module: Any, owner: Any, dtype: torch.dtype, device: torch.device
) -> dict[tuple[Any, str], Any]:
    """Draw the random weights of a module on the device, those of its children first. Returns the
    empty parameters that were replaced, which say how to quantize."""
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
