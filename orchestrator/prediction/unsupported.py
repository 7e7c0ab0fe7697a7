"""Trials whose memory is not predicted, and why: a missing figure is better than a wrong one."""

import importlib.util
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from jobs.spec import HookPlace, TrialSpec
from jobs.techniques.hooks import hook_name

PLAIN_LORA = frozenset(
    ("r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "layers_pattern")
).union(("target_modules", "exclude_modules", "layers_to_transform"))
"""Parameters of LoRA with which it still computes two products beside each layer, and no more."""
_ARGUMENTS = {
    "use_liger_kernel": "Liger's kernels are not traced",
    "auto_find_batch_size": "the micro-batch is found while training",
    "torch_empty_cache_steps": "the allocator's cache is emptied between steps",
    "use_ipex": "IPEX replaces operators",
    "optim_target_modules": "low-rank optimizers project gradients in libraries that are not "
    "traced",
}
"""Training argument -> why a trial that sets it is not predicted."""
_HOOK_PLACES = {
    "regions": "torch.compile plans its own buffers",
    "allocator": "only the allocator's default settings are modelled",
    "linears": "torchao's casts to FP8 are not traced",
}
"""Place of a hook -> why a trial that has one there is not predicted."""
_UNTRACED_ATTENTION = ("flex", "flash_attention_4", "kernels-community/flash-attn4")
_TRITON_PLACES: tuple[HookPlace, ...] = ("layers", "loss")
_TRITON_LIBRARIES = {
    "liger_kernels": "liger_kernel",
    "liger_loss": "liger_kernel",
    "cut_loss": "cut_cross_entropy",
}
"""Hook -> the package in Python whose own code is traced, without its kernels."""
_TRACED_LORA = PLAIN_LORA.union(
    ("bias", "dtype", "ensure_weight_tying", "fan_in_fan_out", "lora_bias", "lora_dropout"),
    ("init_lora_weights", "modules_to_save", "target_parameters", "trainable_token_indices"),
    ("use_dora",),
)
_UNTRACED_BASE = (
    "bnb_4bit_quant_storage",
    "llm_int8_enable_fp32_cpu_offload",
    "llm_int8_has_fp16_weight",
)
"""Parameters of bitsandbytes with which it stores its weights in another way."""
_UNTRACED_INITIALIZATIONS = ("corda", "eva", "loftq", "lora_ga")
"""Of LoRA, which run the model on data, or quantize it, before the training."""
_TORCHAO_OPTIMIZERS = ("adamw_torch_4bit", "adamw_torch_8bit")


def triton_libraries(spec: TrialSpec) -> list[str]:
    """Packages of triton kernels whose own code a trial runs."""
    hooks = (hook_name(spec, place) for place in _TRITON_PLACES)
    return [_TRITON_LIBRARIES[own] for own in hooks if own in _TRITON_LIBRARIES]


def runs_trl(spec: TrialSpec) -> bool:
    return hook_name(spec, "loop").startswith("trl_")


def has_images(spec: TrialSpec) -> bool:
    """Whether images stand among the tokens."""
    return spec.model.task == "image-text-to-text"


def is_fsdp(spec: TrialSpec) -> bool:
    return bool(spec.settings.training_arguments.get("fsdp"))


def depends_on_values(spec: TrialSpec) -> bool:
    """Whether what a step does depends on values of its tensors, and not on their shapes alone."""
    hook = spec.settings.hooks.get("model")
    # These adapters compare random numbers with the share of modules that they leave out.
    draws = hook is not None and hook.arguments.get("method") in ("loha", "lokr")
    cuts = "cut_cross_entropy" in triton_libraries(spec)
    return runs_trl(spec) or has_images(spec) or draws or cuts


def has_packed_base(spec: TrialSpec) -> bool:
    """Whether bitsandbytes packs the weights that are not trained."""
    return hook_name(spec, "base") == "quantized_base"


def multiplies_integers(spec: TrialSpec) -> bool:
    """Whether bitsandbytes computes with weights and inputs in 8 bits."""
    return has_packed_base(spec) and spec.settings.hooks["base"].arguments["method"] == "bnb_8bit"


def moves_by_trl(spec: TrialSpec) -> bool:
    """Whether TRL's code moves activations to the host and back."""
    arguments = spec.settings.hooks.get("arguments")
    parameters = {} if arguments is None else arguments.arguments["parameters"]
    own = hook_name(spec, "checkpointing") == "offloaded_activations"
    return own or bool(parameters.get("activation_offloading"))


def waits_on_host(spec: TrialSpec) -> bool:
    """Whether activations move to the host and back."""
    checkpoint = spec.settings.training_arguments.get("gradient_checkpointing_kwargs") or {}
    return moves_by_trl(spec) or bool(checkpoint.get("offload"))


def empties_cache(spec: TrialSpec) -> bool:
    """Whether each forward pass begins by emptying the allocator's cache."""
    return moves_by_trl(spec) and importlib.util.find_spec("bitsandbytes") is not None


def kept_on_host(spec: TrialSpec) -> set[str]:
    """What DeepSpeed keeps there, of "optimizer" (its states) and "param" (the weights)."""
    zero = (spec.settings.deepspeed or {}).get("zero_optimization", {})
    sections = {part: zero.get(f"offload_{part}") or {} for part in ("optimizer", "param")}
    return {part for part, own in sections.items() if str(own.get("device", "none")) != "none"}


def has_timed_step(spec: TrialSpec) -> bool:
    """Whether the time of a step follows from its kernels. It does not where they wait for states
    or activations on the host, or where PyTorch dispatches each of them in Python, or calls
    compiled code for each tensor, as torchao's optimizers do."""
    offloads = spec.world_size == 1 and spec.settings.deepspeed is not None
    calls = spec.settings.training_arguments.get("optim") in _TORCHAO_OPTIMIZERS
    in_python = calls or "checkpointing" in spec.settings.hooks
    return not (offloads or waits_on_host(spec) or in_python)


def unpredictable(spec: TrialSpec) -> str:
    """Why nothing is predicted of this trial; empty if something is."""
    arguments = spec.settings.training_arguments
    reasons = itertools.chain(
        _untraced_code(spec),
        _untraced_kernels(spec),
        (reason for name, reason in _ARGUMENTS.items() if arguments.get(name)),
        _unmodelled_deepspeed(spec),
    )
    return next(reasons, "")


def _untraced_code(spec: TrialSpec) -> Iterator[str]:
    if spec.own_code is not None:
        yield "what your own code computes is not traced"
    if spec.model.task == "speech-ctc":
        yield "a CTC loss aligns the values of its transcripts, which a trace does not have"
    for library in _traced_libraries(spec):
        if importlib.util.find_spec(library) is None:
            name = library.replace("_", "-")
            yield f"the own code of {name} is traced, and not installed: pip install {name}"
    if not runs_trl(spec):
        return
    if is_fsdp(spec):
        yield "TRL's Trainers read weights that FSDP2 shards, which is not traced"


def _traced_libraries(spec: TrialSpec) -> Iterator[str]:
    """Packages in Python whose own code a trace runs."""
    yield from triton_libraries(spec)
    if runs_trl(spec) or moves_by_trl(spec):
        yield "trl"
    optimizer = spec.settings.training_arguments.get("optim")
    if "rounding" in spec.settings.hooks or optimizer in _TORCHAO_OPTIMIZERS:
        yield "torchao"


def _untraced_kernels(spec: TrialSpec) -> Iterator[str]:
    hooks = spec.settings.hooks
    if spec.settings.training_arguments.get("torch_compile"):
        yield "torch.compile plans its own buffers"
    yield from (reason for place, reason in _HOOK_PLACES.items() if place in hooks)
    if hook_name(spec, "layers") == "hub_layers":
        yield "the kernels of the Hub are not traced"
    attention = str(spec.settings.model_kwargs.get("attn_implementation", ""))
    if attention.startswith(_UNTRACED_ATTENTION):
        yield f"{attention} runs kernels that are not traced"
    experts = str(spec.settings.model_kwargs.get("experts_implementation", ""))
    if experts in ("deepgemm", "sonicmoe"):
        yield f"{experts} runs kernels that are not traced"
    if has_packed_base(spec) and not _is_traced_base(spec):
        yield "what a base in this format takes is not traced"
    if hook_name(spec, "base") == "torchao_int8_base":
        yield "the kernels of torchao's quantized base are not traced"
    if hook_name(spec, "model") == "peft_adapter":
        method, parameters = (hooks["model"].arguments[key] for key in ("method", "parameters"))
        is_drawn = bool(parameters.get("module_dropout"))
        if is_drawn or (method == "lora" and not _is_traced_lora(parameters)):
            yield f"the operators of this {method} adapter are not traced"


def _is_traced_base(spec: TrialSpec) -> bool:
    """Whether it is known what the base takes: in one process, with few outliers."""
    parameters = spec.settings.hooks["base"].arguments["parameters"]
    # Below bitsandbytes' own threshold, many features are outliers, as the data decides.
    has_few_outliers = not 0 < parameters.get("llm_int8_threshold", 6) < 6
    is_alone = spec.world_size == 1
    return is_alone and has_few_outliers and parameters.keys().isdisjoint(_UNTRACED_BASE)


def _is_traced_lora(parameters: Mapping[str, Any]) -> bool:
    initialization = parameters.get("init_lora_weights", True)
    is_traced = initialization not in _UNTRACED_INITIALIZATIONS
    return is_traced and _TRACED_LORA.issuperset(parameters)


def _unmodelled_deepspeed(spec: TrialSpec) -> Iterator[str]:
    config = spec.settings.deepspeed
    if config is None:
        return
    # Where the optimizer's states and the parameters live.
    zero = config.get("zero_optimization", {})
    optimizer, parameters = (zero.get(f"offload_{part}") or {} for part in ("optimizer", "param"))
    if "nvme" in (optimizer.get("device"), parameters.get("device")):
        yield "NVMe offload keeps buffers whose number depends on the disk"
    if optimizer.get("super_offload"):
        yield "the buffers of SuperOffload are not modelled"
    if str(optimizer.get("device", "none")) != "none":
        return
    name = str((config.get("optimizer") or {}).get("type", "AdamW"))
    if name.lower() not in ("adam", "adamw"):
        yield f"DeepSpeed's own {name} is not traced"
    if (config.get("data_types") or {}).get("grad_accum_dtype"):
        yield "gradients that DeepSpeed accumulates in another format are not modelled"
