"""Trials whose memory is not predicted, and why: a missing figure is better than a wrong one."""

from __future__ import annotations

from jobs.spec import TrialSpec

_ARGUMENTS = {
    "label_smoothing_factor": "label smoothing computes its loss outside the model",
    "neftune_noise_alpha": "NEFTune adds noise to the embeddings through a hook",
    "use_liger_kernel": "Liger's kernels are not traced",
    "fsdp": "FSDP shards what it trains",
    "auto_find_batch_size": "the micro-batch is found while training",
    "torch_empty_cache_steps": "the allocator's cache is emptied between steps",
    "use_ipex": "IPEX replaces operators",
    "optim_target_modules": "low-rank optimizers project gradients in libraries that are not "
    "traced",
}
"""Training argument -> why a trial that sets it is not predicted."""
_HOOK_PLACES = {
    "rows": "TRL computes the loss in chunks that are not traced",
    "preferences": "the passes of the reference model, and TRL's loss in chunks, are not traced",
    "regions": "torch.compile plans its own buffers",
    "allocator": "only the allocator's default settings are modelled",
    "layers": "the kernels of Liger and of the Hub are not traced",
    "linears": "torchao's casts to FP8 are not traced",
    "rounding": "torchao's rounded linear layers are not traced",
    "trained": "a training of some of the model's own weights was never compared with a GPU",
    "checkpointing": "what selective checkpointing or offloading keeps is not traced",
    "kernels": "the trace cannot restrict attention to one kernel",
}
"""Place of a hook -> why a trial that has one there is not predicted."""
_PLAIN_LORA = frozenset(
    {
        "alpha_pattern",
        "exclude_modules",
        "layers_pattern",
        "layers_to_transform",
        "lora_alpha",
        "r",
        "rank_pattern",
        "target_modules",
        "use_rslora",
    }
)
"""Parameters of LoRA with which it still computes two products beside each layer, and no more."""


def unpredictable(spec: TrialSpec) -> str:
    """Why nothing is predicted of this trial; empty if something is."""
    return (
        _untraced_inputs(spec)
        or _untraced_kernels(spec)
        or _untraced_states(spec)
        or _untraced_arguments(spec)
        or _unmodelled_deepspeed(spec)
    )


def _untraced_inputs(spec: TrialSpec) -> str:
    if spec.own_code is not None:
        return "what your own code computes is not traced"
    if spec.model.task == "image-text-to-text":
        return "image positions depend on the tokens of a batch, which a trace does not have"
    if "batching" in spec.settings.hooks:
        return "rows in one sequence need a mask that depends on their lengths"
    return ""


def _untraced_kernels(spec: TrialSpec) -> str:
    if spec.settings.training_arguments.get("torch_compile"):
        return "torch.compile plans its own buffers"
    for place, reason in _HOOK_PLACES.items():
        if place in spec.settings.hooks:
            return reason
    loss = spec.settings.hooks.get("loss")
    if loss is not None and loss.name != "chunked_loss":
        return "the kernels of this loss are not traced"
    attention = str(spec.settings.model_kwargs.get("attn_implementation", ""))
    if attention.startswith(("flash_attention", "flex", "kernels-community/")):
        return f"{attention} runs kernels that are not traced"
    if "experts_implementation" in spec.settings.model_kwargs:
        return "the kernels of a chosen experts implementation are not traced"
    base = spec.settings.hooks.get("base")
    if base is not None and base.name in ("fp16_base", "dequantized_base"):
        return "a base in this format was never compared with a GPU"
    if base is not None and base.name != "bf16_base":
        return "the kernels of a quantized base are not traced"
    return _untraced_adapter(spec)


def _untraced_adapter(spec: TrialSpec) -> str:
    adapter = spec.settings.hooks.get("model")
    if adapter is None or adapter.name != "peft_adapter":
        return ""
    method = adapter.arguments["method"]
    parameters = adapter.arguments["parameters"]
    # Other methods compute more than two products beside a layer, and no GPU has checked them.
    if method != "lora" or not _PLAIN_LORA.issuperset(parameters):
        return f"the operators of this {method} adapter are not traced"
    return ""


def _untraced_states(spec: TrialSpec) -> str:
    arguments = spec.settings.training_arguments
    if str(arguments.get("optim", "")).startswith(("adamw_torch_8bit", "adamw_torch_4bit")):
        return "torchao compiles its optimizers"
    optimizer = spec.settings.hooks.get("optimizer")
    if optimizer is not None and optimizer.name == "muon":
        return "the temporary matrices of Muon's update were never compared with a GPU"
    if (arguments.get("gradient_checkpointing_kwargs") or {}).get("offload"):
        return "activations offloaded to the host overlap with the computation"
    return ""


def _untraced_arguments(spec: TrialSpec) -> str:
    for name, reason in _ARGUMENTS.items():
        if spec.settings.training_arguments.get(name):
            return reason
    return ""


def _unmodelled_deepspeed(spec: TrialSpec) -> str:
    config = spec.settings.deepspeed
    if config is None:
        return ""
    # Where the optimizer's states and the parameters live.
    zero = config.get("zero_optimization", {})
    devices = {}
    for part in ("optimizer", "param"):
        devices[part] = str((zero.get(f"offload_{part}") or {}).get("device", "none"))
    if "nvme" in devices.values():
        return "NVMe offload keeps buffers whose number depends on the disk"
    if (zero.get("offload_optimizer") or {}).get("super_offload"):
        return "the buffers of SuperOffload are not modelled"
    if devices["optimizer"] != "none":
        return ""
    optimizer = str(spec.settings.training_arguments.get("optim", "adamw_torch_fused"))
    if not optimizer.startswith("adamw_torch"):
        return "DeepSpeed flattens parameters before this optimizer sees them"
    if spec.accumulation > 1:
        return "how DeepSpeed accumulates gradients on the GPU is not modelled"
    return ""
