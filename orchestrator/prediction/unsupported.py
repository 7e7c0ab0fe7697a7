"""Trials whose memory is not predicted, and why: better no figure than a wrong one."""

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
    "optim_target_modules": "low-rank optimizers project gradients in libraries that are not traced",
}


def unknown(spec: TrialSpec) -> str:
    """Why nothing is predicted of this trial; empty where something is."""
    arguments, kwargs = spec.recipe.training_arguments, spec.recipe.model_kwargs
    if arguments.get("torch_compile"):
        return "torch.compile plans its own buffers"
    attention = str(kwargs.get("attn_implementation", ""))
    if attention.startswith(("flash_attention", "flex")):
        return f"{attention} runs kernels that are not traced"
    if "kernels" in spec.recipe.hooks:
        return "which kernel computes attention is not the traced one's choice"
    if spec.data.file is not None:
        return "the lengths of a data file's samples are known only as batches are drawn"
    if str(arguments.get("optim", "")).startswith(("adamw_torch_8bit", "adamw_torch_4bit")):
        return "torchao compiles its optimizers"
    if (arguments.get("gradient_checkpointing_kwargs") or {}).get("offload"):
        return "activations offloaded to the host overlap with the computation"
    never = next(
        (word.partition(":")[2] for word in spec.recipe.requires if word.startswith("never:")), ""
    )
    if never:
        return never
    return next(
        (reason for name, reason in _ARGUMENTS.items() if arguments.get(name)), ""
    ) or _deepspeed(spec)


def _deepspeed(spec: TrialSpec) -> str:
    config = spec.recipe.deepspeed
    if config is None:
        return ""
    zero = config.get("zero_optimization", {})
    offloaded = {
        part: str((zero.get(f"offload_{part}") or {}).get("device", "none"))
        for part in ("optimizer", "param")
    }
    if "nvme" in offloaded.values():
        return "NVMe offload keeps buffers whose number depends on the disk"
    if offloaded["optimizer"] == "none":
        if not str(spec.recipe.training_arguments.get("optim", "adamw_torch_fused")).startswith(
            "adamw_torch"
        ):
            return "DeepSpeed flattens parameters before this optimizer sees them"
        if spec.accumulation > 1:
            return "how DeepSpeed accumulates gradients on the GPU is not modelled"
    return ""
