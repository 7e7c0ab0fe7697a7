"""What examples of axolotl turn on and our configuration has no word for."""

from __future__ import annotations

from collections.abc import Mapping

from tests.benchmarks.breadth.draft import Draft
from tests.benchmarks.breadth.example import Example

NOT_OFFERED: Mapping[str, tuple[str, ...]] = {
    "adapter: ReLoRA": (
        "relora",
        "relora_prune_ratio",
        "relora_cpu_offload",
        "jagged_restart_steps",
        "jagged_restart_warmup_steps",
        "jagged_restart_anneal_steps",
    ),
    "attention: axolotl's mix of two implementations in Gemma 4": ("gemma4_hybrid_attn_impl",),
    "base: a checkpoint in 4 bits by GPTQ": ("gptq", "gptq_disable_exllama"),
    "base: a checkpoint in NVFP4": ("nvfp4_merge_aware", "dsv4_fp4_grouped_mode"),
    "experts: axolotl's own form of Llama 4's": ("llama4_linearized_experts",),
    "kernels: axolotl's own for query and key of attention": ("fused_attn_kernel",),
    "kernels: axolotl's own for LoRA": ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel"),
    "kernels: flash-attn's cross-entropy": ("flash_attn_cross_entropy",),
    "kernels: optimum's BetterTransformer": ("flash_optimum",),
    "loop: diffusion of text": ("diffusion",),
    "loop: reward models": ("reward_model", "process_reward_model", "num_labels"),
    "training: a part of the layers at a time (LISA)": (
        "lisa_n_layers",
        "lisa_step_interval",
        "lisa_layers_attribute",
    ),
    "training: for sparse weights (llm-compressor)": ("llmcompressor",),
}
"""Reason -> keys. One that is off, as `false`, asks for nothing."""


def note_what_is_not_offered(example: Example, draft: Draft) -> None:
    """Give the draft the reasons of the keys that are on."""
    for reason, keys in NOT_OFFERED.items():
        for key in keys:
            if example.is_on(key):
                draft.miss(reason)
    if example.is_on("use_scattermoe"):
        draft.miss("experts: ScatterMoE's kernels")
    # axolotl replaces the layer in the Llama architectures alone.
    is_llama = draft.model.get("architecture") in ("llama", "llama4")
    if example.is_on("flash_attn_fuse_mlp") and is_llama:
        draft.miss("kernels: xformers' gated layers")
    _note_frozen_vision(example, draft)
    # Further options of these loops.
    example.ignore("ebft", "trl", "vllm", "rl_beta", "kto_desirable_weight", "orpo_alpha")


def _note_frozen_vision(example: Example, draft: Draft) -> None:
    """Freezing the parts for images changes nothing where an adapter has no part in them."""
    adapter = draft.axes.get("adapter", {})
    targets = adapter.get("lora", {}).get("target_modules", "")
    names_language_model = isinstance(targets, str) and "language_model" in targets
    if example.is_on("freeze_mm_modules") and not names_language_model:
        draft.miss("training: frozen parts for images")
