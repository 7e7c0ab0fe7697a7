"""In which formats the weights of a model really are, read from the live tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.anatomy.memory.live_tensors import nested_tensors
from jobs.flags import Flag, FlagKind
from jobs.record import Column

if TYPE_CHECKING:
    import torch

COLUMNS = (
    Column.text(
        "parameter_dtypes",
        "Formats of the parameters, the most frequent first: a dtype, or how the weight is packed",
    ),
    Column.count("parameters_total", "Number of parameters, frozen ones included"),
    Column.count("parameters_trainable", "Number of parameters that the optimizer updates"),
    Column.count(
        "vision_parameters_trainable",
        "Trained parameters of the vision tower (0: it is frozen); null without one",
    ),
    Column.nbytes("weights_4bit_bytes", "Bytes of parameters packed in 4 bits, scales included"),
    Column.nbytes("weights_8bit_bytes", "Bytes of parameters in 8 bits, scales included"),
    Column.nbytes("weights_16bit_bytes", "Bytes of the parameters in 16 bits"),
    Column.nbytes("weights_32bit_bytes", "Bytes of the parameters in 32 bits"),
    Column.number(
        "base_quantized_share",
        "Share of the frozen layers' weights that are in 8 bits or fewer, embeddings, output layer "
        "and vision tower left out; null if no quantized base was asked for",
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Weight:
    """One parameter as it is stored."""

    elements: int  # of the weight, not of the packed tensor
    bits: int  # of one element
    nbytes: int  # in memory, the scales of a quantized weight included
    format: str
    is_trained: bool
    is_layer: bool  # a matrix of a layer of text: no vector, embedding, output or vision layer


def weights_of(model: torch.nn.Module) -> list[Weight]:
    """Every parameter of the model once."""
    import torch

    outside = {id(module) for module in (*_output_layers(model), *_vision_layers(model))}
    weights: dict[int, Weight] = {}
    for module in model.modules():
        is_layer = not isinstance(module, torch.nn.Embedding) and id(module) not in outside
        for parameter in module.parameters(recurse=False):
            if id(parameter) not in weights:
                # FSDP2 puts its own parameters in the place of packed ones. The layer still knows.
                packed = getattr(parameter, "quant_state", getattr(module, "quant_state", None))
                elements, bits, name = _format(parameter, packed if parameter.dim() > 1 else None)
                weights[id(parameter)] = Weight(
                    elements=elements,
                    bits=bits,
                    nbytes=sum(tensor.nbytes for tensor in stored_tensors(parameter)),
                    format=name,
                    is_trained=parameter.requires_grad,
                    is_layer=is_layer and parameter.dim() > 1,
                )
    return list(weights.values())


def measurements(model: torch.nn.Module) -> dict[str, Any]:
    """Values of ``COLUMNS``."""
    weights = weights_of(model)
    elements_by_format: Counter[str] = Counter()
    for weight in weights:
        elements_by_format[weight.format] += weight.elements
    values: dict[str, Any] = {
        "parameter_dtypes": ", ".join(name for name, _ in elements_by_format.most_common()),
        "parameters_total": sum(weight.elements for weight in weights),
        "parameters_trainable": sum(weight.elements for weight in weights if weight.is_trained),
    }
    for bits in (4, 8, 16, 32):
        sizes = [weight.nbytes for weight in weights if weight.bits == bits]
        values[f"weights_{bits}bit_bytes"] = sum(sizes)
    tower = _vision_tower(inside_adapter(model))
    if tower is not None:
        trained = (weight.elements for weight in weights_of(tower) if weight.is_trained)
        values["vision_parameters_trainable"] = sum(trained)
    # transformers sets this mark if quantization was asked for, even if no layer was quantized.
    if getattr(inside_adapter(model), "is_quantized", False):
        values["base_quantized_share"] = _quantized_share(weights)
    return values


def _quantized_share(weights: Iterable[Weight]) -> float | None:
    frozen = [weight for weight in weights if weight.is_layer and not weight.is_trained]
    total = sum(weight.elements for weight in frozen)
    quantized = sum(weight.elements for weight in frozen if weight.bits <= 8)
    return quantized / total if total else None


def stored_tensors(parameter: Any) -> Iterator[torch.Tensor]:
    """The plain tensors that hold a parameter: itself, or its packed values and their scales."""
    yield from nested_tensors(parameter)
    # The scales of a weight that bitsandbytes packed, and those of its scales if they are quantized
    # themselves.
    packed = getattr(parameter, "quant_state", None)
    while packed is not None:
        yield from nested_tensors([packed.absmax, packed.code, packed.offset])
        # On a CPU, bitsandbytes unpacks the scales for a forward pass without gradients.
        packed = packed.state2 if packed.nested else None
    yield from nested_tensors(getattr(parameter, "SCB", None))


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the storages of these tensors, each once: tensors may share one."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def unquantized_flag(share: float | None) -> Flag | None:
    """The flag of a base that should be quantized, and is not, from its quantized share."""
    # A small layer beside the others, such as a patch projection, is no reason for a flag.
    if share is None or share >= 0.95:
        return None
    return Flag(FlagKind.NOT_QUANTIZED, 1 - share)


def _format(parameter: Any, packed: Any) -> tuple[int, int, str]:
    """A weight's elements, the bits of each, and the name of their format; ``packed`` says how
    bitsandbytes packed it."""
    # ZeRO-3 leaves empty shells in the model, which know their real size.
    elements = int(getattr(parameter, "ds_numel", parameter.numel()))
    if packed is not None:
        # bitsandbytes packs two elements into a byte, and knows the shape that they had.
        return packed.shape.numel(), 4, packed.quant_type
    parts = list(nested_tensors(parameter))
    # A DTensor is no format: it is one GPU's part of a weight.
    if parts[0] is not parameter and not hasattr(parameter, "placements"):
        # torchao's tensor has the dtype of its values. Its largest part holds them packed.
        largest = max(part.nbytes for part in parts)
        bits = round(8 * largest / max(elements, 1))
        return elements, bits, f"int{bits}"
    name = str(parameter.dtype).removeprefix("torch.")
    return elements, 8 * parameter.element_size(), name


def inside_adapter(model: Any) -> Any:
    """The model itself, without an adapter around it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _output_layers(model: Any) -> Iterator[Any]:
    """The layers that make the output. Quantizers do not change their format."""
    model = inside_adapter(model)
    for module in model.modules():
        # PEFT trains a copy of a classifier's head, and keeps the frozen original beside it.
        if hasattr(module, "modules_to_save") and hasattr(module, "original_module"):
            yield from module.original_module.modules()
    if not hasattr(model, "get_output_embeddings"):
        return
    layer = model.get_output_embeddings()
    if layer is not None:
        # An adapter of the output layer holds the layer itself.
        yield from layer.modules()


def _vision_tower(model: Any) -> Any:
    """The part of a vision-language model that reads images; None for any other model."""
    if not hasattr(getattr(model, "config", None), "vision_config"):
        return None
    tower = model.get_encoder(modality="image")
    # transformers returns a model itself where it knows no such part.
    return None if tower in (model, getattr(model, "model", None)) else tower


def _vision_layers(model: Any) -> list[Any]:
    """The modules of a vision-language model outside of its language model."""
    model = inside_adapter(model)
    if _vision_tower(model) is None:
        return []
    inside = {id(module) for module in model.get_decoder().modules()}
    return [module for module in model.modules() if id(module) not in inside]
