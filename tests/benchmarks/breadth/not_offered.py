"""What examples of axolotl turn on and our configuration has no word for."""

from __future__ import annotations

from collections.abc import Mapping

from tests.benchmarks.breadth.draft import Draft
from tests.benchmarks.breadth.example import Example

NOT_OFFERED: Mapping[str, tuple[str, ...]] = {
    "adapter: LoftQ's initial weights": ("peft",),
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
    "base: a checkpoint in MXFP4, cast to bf16": (
        "model_quantization_config",
        "model_quantization_config_kwargs",
    ),
    "base: a checkpoint in NVFP4": ("nvfp4_merge_aware", "dsv4_fp4_grouped_mode"),
    "experts: axolotl's own form of Llama 4's": ("llama4_linearized_experts",),
    "kernels: axolotl's own for query and key of attention": ("fused_attn_kernel",),
    "kernels: axolotl's own for LoRA": ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel"),
    "kernels: flash-attn's for norms, gated layers and loss": (
        "flash_attn_cross_entropy",
        "flash_attn_fuse_mlp",
        "flash_attn_rms_norm",
    ),
    "kernels: optimum's BetterTransformer": ("flash_optimum",),
    "loop: diffusion of text": ("diffusion",),
    "loop: energy-based fine-tuning (EBFT)": ("ebft",),
    "loop: reward models": ("reward_model", "process_reward_model", "num_labels"),
    "loss: EAFT": ("use_eaft", "eaft_alpha", "eaft_k"),
    "training: a part of the model's own weights": ("unfrozen_parameters",),
    "training: a part of the layers at a time (LISA)": (
        "lisa_n_layers",
        "lisa_step_interval",
        "lisa_layers_attribute",
    ),
    "training: for quantization to come (QAT)": ("qat",),
    "training: for sparse weights (llm-compressor)": ("llmcompressor",),
    "training: frozen parts for images": ("freeze_mm_modules",),
}
"""Reason -> keys. One that is off, as `false`, asks for nothing."""


def note_what_is_not_offered(example: Example, draft: Draft) -> None:
    """Give the draft the reasons of the keys that are on."""
    for reason, keys in NOT_OFFERED.items():
        for key in keys:
            if example.is_on(key):
                draft.miss(reason)
    # Kernels in general; those that matter have keys of their own.
    example.ignore("use_kernels")
    if example.is_on("use_scattermoe"):
        draft.miss("experts: ScatterMoE's kernels")
    # Further options of these loops.
    example.ignore("trl", "vllm", "rl_beta", "kto_desirable_weight", "orpo_alpha")
