"""Facts -> the values of our axes: one small function per axis."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from jobs.tasks import OTHER_INPUTS
from orchestrator.planning.dialects.to_ours.facts import Facts, below

COMPILE_MODES: Mapping[str, str] = {
    "reduce-overhead": "inductor_reduce_overhead",
    "max-autotune": "inductor_max_autotune_cudagraphs",
    "max-autotune-no-cudagraphs": "inductor_max_autotune",
}
"""torch.compile's mode -> the value of our axis."""


_EVERY_LINEAR = ("['all']", "['all-linear']")
"""How trainers write that every linear layer has an adapter."""


def axes_of(facts: Facts) -> dict[str, Any]:
    """Axis -> its value, for every axis that the facts decide. ``layers`` among the facts is the
    number of the model's layers."""
    values = {axis: make(facts) for axis, make in _AXES.items()}
    return {axis: value for axis, value in values.items() if value is not None}


def has_adapter(facts: Facts) -> bool:
    """Whether the model's own weights are frozen beside an adapter."""
    return facts.get("adapter") not in (None, "none")


def _precision(facts: Facts) -> str | None:
    tf32 = "_tf32" if facts.get("tf32") is True else ""
    if facts.get("fp8"):
        return "fp8_tensorwise"
    # "auto" is bf16 where the GPU has it, unless fp16 is asked for.
    if facts.get("bf16") is True or (facts.get("bf16") == "auto" and not facts.get("fp16")):
        # Beside an adapter, the axis base has the format of the frozen weights.
        in_16_bits = facts.get("weights") == "16" and not has_adapter(facts)
        return ("bf16_weights" if in_16_bits else "bf16") + tf32
    if facts.get("fp16"):
        return "fp16"
    if facts.get("weights") == "16" and not has_adapter(facts):
        return "bf16_weights" + tf32
    return tf32.removeprefix("_") or "fp32"


def _base(facts: Facts) -> Any:
    bits, is_half = facts.get("bits"), _precision(facts) == "fp16"
    if not has_adapter(facts):
        return None
    if facts.get("quantized") == "dequantized":
        return "dequantized"
    if bits in (4, 8):
        parameters = {"upcast": False, **below(facts, "bnb")}
        if is_half:
            parameters["dtype"] = "float16"
        return {f"bnb_{bits}bit": parameters}
    if facts.get("weights") not in ("16", "frozen 16"):
        return None
    return "16bit_fp16" if is_half else "16bit"


def _activations(facts: Facts) -> str | None:
    offloading = facts.get("offloading")
    recomputes = facts.get("recomputes_beside_adapter", True) or not has_adapter(facts)
    if offloading == "offload" and facts.get("checkpointing") and recomputes:
        return "checkpoint_offload_streams"
    if offloading:
        return str(offloading)
    if not facts.get("checkpointing"):
        # TRL's own default is to recompute.
        return "keep" if str(facts.get("loop")).startswith("trl") else None
    return "checkpoint_reentrant" if facts.get("reentrant") is True else "checkpoint"


def _adapter(facts: Facts) -> Any:
    name = facts.get("adapter")
    if name in (None, "none"):
        return None
    parameters = below(facts, str(name))
    modules = _for_text(_names(parameters.pop("target_modules", None)), facts)
    if parameters.pop("all_linear", False) or str(modules).lower() in _EVERY_LINEAR:
        modules = "all-linear"
    if modules:
        parameters["target_modules"] = modules
    if also := _names(parameters.get("modules_to_save")):
        parameters["modules_to_save"] = also
    return {name: parameters}


def _kernels(facts: Facts) -> Any:
    chosen = below(facts, "liger")
    if facts.get("kernels"):
        return facts["kernels"]
    if not any(chosen.values()):
        return None
    every = ("rope", "rms_norm", "layer_norm", "mlp")
    if all(chosen.get(name) for name in every):
        return "liger"
    return {"liger": {name: bool(chosen.get(name)) for name in every}}


def _loss(facts: Facts) -> Any:
    if str(facts.get("loop")).startswith("trl"):
        return None  # TRL's Trainers compute it themselves
    if facts.get("loss") == "eaft":
        return {"eaft": below(facts, "eaft")}
    return facts.get("loss")


def _trainable(facts: Facts) -> Any:
    patterns = _for_text(_names(facts.get("trainable")), facts)
    count, layers = facts.get("trainable.layers"), facts.get("layers")
    if not patterns and isinstance(count, int) and isinstance(layers, int):
        # The last layers; a negative number means the first.
        trained = range(layers - count, layers) if count > 0 else range(-count)
        patterns = [rf"layers\.({'|'.join(map(str, trained))})\."]
        patterns += _names(facts.get("trainable.also")) or []
    if not patterns or has_adapter(facts):
        return None
    return {"matching": {"patterns": patterns}}


def _compile(facts: Facts) -> str | None:
    if not facts.get("compile"):
        return None
    backend = facts.get("compile.backend") or "inductor"
    if facts.get("compile.regional") is True and backend == "inductor":
        return "inductor_regional"
    return COMPILE_MODES.get(str(facts.get("compile.mode")), str(backend))


def _dataloader(facts: Facts) -> str | None:
    workers = facts.get("workers")
    if not isinstance(workers, int):
        return "unpinned" if facts.get("pin_memory") is False else None
    return f"workers_{workers}" if workers else "main_process"


def _loop(facts: Facts) -> Any:
    loop = facts.get("loop")
    parameters = below(facts, "preference")
    return {loop: parameters} if loop == "trl_dpo" and parameters else loop


def _offload(facts: Facts) -> str | None:
    """DeepSpeed's stage and what is kept on the host, or the nearest that the other axes allow."""
    zero = {"stage": facts.get("zero.stage"), **below(facts, "zero")}
    if facts.get("fsdp_offload"):
        zero = {"stage": 3, "optimizer": "cpu", "parameters": "cpu"}
    stage = zero["stage"]
    if stage is None or facts.get("deepspeed"):
        return None  # a DeepSpeed file says it all
    # ZeRO-3 partitions weights that a quantized base or a fused loss reads whole.
    is_whole = (has_adapter(facts) and facts.get("bits")) or _loss(facts) not in (None, "plain")
    stage = min(int(stage), 2) if is_whole else int(stage)
    # An offloaded optimizer is DeepSpeed's own AdamW.
    is_adamw = _optimizer(facts) in (None, "adamw_torch", "adamw_torch_fused")
    optimizer = zero.get("optimizer") if is_adamw else None
    parameters = zero.get("parameters") if stage == 3 else None
    if not optimizer and not parameters:
        return None if facts.get("fsdp_offload") else f"zero{stage}"
    part = "both" if optimizer and parameters else "optimizer" if optimizer else "parameters"
    device = "nvme" if stage == 3 and "nvme" in (optimizer, parameters) else "cpu"
    return f"zero{stage}_{'cpu' if part == 'parameters' else device}_{part}"


def _batching(facts: Facts) -> Any:
    if facts.get("task") in OTHER_INPUTS:
        return None  # rows without tokens are not grouped by their number
    # Random rows are full already.
    is_packed = facts.get("packed") is True and facts.get("file")
    return "packed_whole_rows" if is_packed else facts.get("packing")


def _micro_batch(facts: Facts) -> Any:
    size = facts.get("micro_batch")
    return size * facts.get("rows_of_a_sample", 1) if isinstance(size, int) else None


def _optimizer(facts: Facts) -> str | None:
    name = facts.get("optimizer")
    return f"{name}_layerwise" if name and facts.get("optimizer_layerwise") is True else name


def _vision(facts: Facts) -> Any:
    has_images = facts.get("task") == "image-text-to-text"
    return facts.get("vision") if has_images and not has_adapter(facts) else None


def _names(value: Any) -> Any:
    """A list of names, which a command or YAML may write as one text with commas."""
    if not isinstance(value, str) or re.search(r"[\\\[(|*]", value):
        return value  # a list, or a regular expression
    return [name.strip() for name in value.split(",")]


def _for_text(names: Any, facts: Facts) -> Any:
    """Names of a model with images, as its language model alone has them."""
    if facts.get("task") == "image-text-to-text":
        return names
    if isinstance(names, str):
        return names.replace("language_model.", "")
    if isinstance(names, list):
        return [name.replace("language_model.", "") for name in names]
    return names  # None, or a switch, which a key may state in the place of names


def _value(fact: str) -> Callable[[Facts], Any]:
    return lambda facts: facts.get(fact)


_AXES: Mapping[str, Callable[[Facts], Any]] = {
    "micro_batch": _micro_batch,
    "accumulation": _value("accumulation"),
    "precision": _precision,
    "optimizer": _optimizer,
    "activations": _activations,
    "attention": _value("attention"),
    "experts": _value("experts"),
    "kernels": _kernels,
    "loss": _loss,
    "adapter": _adapter,
    "base": _base,
    "trainable": _trainable,
    "vision": _vision,
    "qat": _value("qat"),
    "compile": _compile,
    "dataloader": _dataloader,
    "offload": _offload,
    "batching": _batching,
    "loop": _loop,
}
