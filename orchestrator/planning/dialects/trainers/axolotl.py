"""Axolotl's YAML. Semantics as in its utils/config, core/builders and loaders (version of 2026)."""

from collections.abc import Mapping
from typing import Any

from orchestrator.planning.dialects.trainers import training_arguments as hf
from orchestrator.planning.dialects.trainers.rule import Rule, as_is, aside, impossible, one_of

_RECIPE = "it changes the training and not its memory or time by much"
_OWN_KERNEL = "a kernel of axolotl that no axis has: your training may be faster, or need less"

DEFAULTS: Mapping[str, Any] = {
    "bf16": "auto",
    "weights": "16",
    "reentrant": True,
    "micro_batch": 1,
    "accumulation": 1,
    "optimizer": "adamw_torch_fused",
}
"""Facts of a file that does not state them: weights are loaded in 16 bits where bf16 is on."""

_PLUGIN = "axolotl.integrations."
PLUGINS: Mapping[str, Any] = {
    f"{_PLUGIN}cut_cross_entropy.cutcrossentropyplugin": {"loss": "cce"},
    f"{_PLUGIN}liger.ligerplugin": {},
}
PLUGIN_OF: Mapping[str, str] = {
    "liger_": f"{_PLUGIN}liger.LigerPlugin",
    "cut_cross_entropy": f"{_PLUGIN}cut_cross_entropy.CutCrossEntropyPlugin",
}
"""Beginning of a key -> the plugin without which it has no effect."""

ROWS: Mapping[str, Rule] = {
    "base_model": as_is("model"),
    "model_type": one_of(
        "task",
        {"automodelforsequenceclassification": "sequence-classification"}
        | {"automodelfortokenclassification": "token-classification"},
    ),
    "processor_type": Rule(fact="task", values={"autoprocessor": "image-text-to-text"}),
    "num_labels": aside("the size of the last layer only"),
    "sequence_len": as_is("length"),
    "micro_batch_size": as_is("micro_batch"),
    "gradient_accumulation_steps": as_is("accumulation"),
    "batch_size": aside("micro_batch_size and gradient_accumulation_steps decide it"),
    "sample_packing": hf.PACKED,
    "pad_to_sequence_len": aside("all rows have the full length"),
    "bf16": Rule(
        values={
            "auto": {"bf16": "auto"},
            "true": {"bf16": True, "weights": "16"},
            "false": {"bf16": False, "weights": "32"},
        }
    ),
    "fp16": Rule(values={"true": {"fp16": True, "weights": "frozen 16"}}),
    "tf32": hf.ROWS["tf32"],
    "bfloat16": Rule(values={"true": {"bf16": True}}),
    "float16": Rule(nearest={"true": ({"fp16": True}, "with autocast")}),
    "torch_dtype": aside("bf16 and fp16 decide it"),
    "fp8": Rule(values={"true": {"fp8": True}}),
    "optimizer": hf.OPTIMIZER,
    "learning_rate": as_is("arguments.learning_rate"),
    "lr_scheduler": Rule(
        fact="arguments.lr_scheduler_type",
        values={word: word for word in ("cosine", "linear", "constant", "constant_with_warmup")},
        why=_RECIPE,
    ),
    "weight_decay": as_is("arguments.weight_decay"),
    "max_grad_norm": as_is("arguments.max_grad_norm"),
    "adam_beta1": as_is("arguments.adam_beta1"),
    "adam_beta2": as_is("arguments.adam_beta2"),
    "adam_epsilon": as_is("arguments.adam_epsilon"),
    "adam_eps": as_is("arguments.adam_epsilon"),
    "warmup_steps": as_is("arguments.warmup_steps"),
    "gradient_checkpointing": Rule(
        values={
            "true": {"checkpointing": True},
            "false": {"checkpointing": False},
            "unsloth": {"checkpointing": True, "offloading": "checkpoint_offload"},
        },
        nearest={
            "offload": ({"offloading": "checkpoint_offload"}, "transformers' own copies"),
            "offload_disk": ({"offloading": "checkpoint_offload"}, "to the host, not to a disk"),
        },
    ),
    "gradient_checkpointing_kwargs.use_reentrant": as_is("reentrant"),
    "activation_offloading": Rule(
        values={"false": {}},
        nearest={
            "true": (
                {"offloading": "offload", "recomputes_beside_adapter": False},
                "TRL's copies, as here",
            ),
            "legacy": ({"offloading": "checkpoint_offload"}, "with checkpointing"),
            "hidden_states": ({"offloading": "checkpoint_offload_streams"}, "with checkpointing"),
            "disk": ({"offloading": "offload"}, "to the host, not to a disk"),
        },
    ),
    "attn_implementation": hf.ATTENTION,
    "flash_attention": Rule(values={"true": {"attention": "flash_attention_2"}}),
    "sdp_attention": Rule(values={"true": {"attention": "sdpa"}}),
    "xformers_attention": Rule(values={"true": {"attention": "xformers"}}),
    "flex_attention": Rule(values={"true": {"attention": "flex_attention"}}),
    "eager_attention": Rule(values={"true": {"attention": "eager"}}),
    "flex_attn_compile_kwargs*": aside("the axis attention compiles flex_attention"),
    "gemma4_hybrid_attn_impl": aside("it is about one family's own attention"),
    "torch_compile": one_of("compile", {"true": True, "auto": True, "false": False}),
    "torch_compile_backend": as_is("compile.backend"),
    "torch_compile_mode": as_is("compile.mode"),
    "adapter": Rule(
        values={
            "lora": {"adapter": "lora"},
            "qlora": {"adapter": "lora", "bits": 4},
            "none": {},
        },
        why="no adapter of that name",
        is_blocking=True,
    ),
    "load_in_4bit": Rule(values={"true": {"bits": 4}}),
    "load_in_8bit": Rule(values={"true": {"bits": 8}}),
    "bnb_config_kwargs.bnb_4bit_use_double_quant": as_is("bnb.bnb_4bit_use_double_quant"),
    "bnb_config_kwargs.bnb_4bit_quant_type": as_is("bnb.bnb_4bit_quant_type"),
    "quantize_moe_experts": Rule(values={"true": {"bnb.quantize_experts": True}}),
    "model_quantization_config": Rule(values={"mxfp4config": {"quantized": "dequantized"}}),
    "model_quantization_config_kwargs.*": aside("the weights become 16-bit while they are loaded"),
    "lora_r": as_is("lora.r"),
    "lora_alpha": as_is("lora.lora_alpha"),
    "lora_dropout": as_is("lora.lora_dropout"),
    "lora_target_modules": as_is("lora.target_modules"),
    "lora_target_linear": one_of("lora.all_linear", {"true": True, "false": False}),
    "lora_target_parameters": as_is("lora.target_parameters"),
    "lora_modules_to_save": as_is("lora.modules_to_save"),
    "lora_fan_in_fan_out": as_is("lora.fan_in_fan_out"),
    "peft_use_rslora": as_is("lora.use_rslora"),
    "peft_use_dora": as_is("lora.use_dora"),
    "peft.*": aside("it decides the first values of the adapter only"),
    "lora_model_dir": aside("an adapter of the same size starts from random values"),
    "relora": Rule(
        nearest={"true": ({"adapter": "lora"}, "ReLoRA also merges and restarts the adapter")}
    ),
    "lisa_n_layers": as_is("trainable.layers", "LISA changes the trained layers every few steps"),
    "lisa_*": aside("the trained layers stay the same"),
    "unfrozen_parameters": as_is("trainable"),
    "plugins": Rule(values=PLUGINS, why="a plugin that no axis stands for", each=True),
    "cut_cross_entropy": Rule(values={"true": {"loss": "cce"}}),
    "liger_fused_linear_cross_entropy": Rule(values={"true": {"loss": "liger"}}),
    "liger_rope": as_is("liger.rope"),
    "liger_rms_norm": as_is("liger.rms_norm"),
    "liger_layer_norm": as_is("liger.layer_norm"),
    "liger_glu_activation": as_is("liger.mlp"),
    "liger_swiglu": as_is("liger.mlp"),
    "liger_*": aside("another of Liger's kernels"),
    "use_kernels": Rule(values={"true": {"kernels": "hub"}}),
    "use_eaft": Rule(values={"true": {"loss": "eaft"}}),
    "eaft_alpha": as_is("eaft.alpha"),
    "eaft_k": as_is("eaft.k"),
    "experts_implementation": one_of(
        "experts",
        {word: word for word in ("eager", "batched_mm", "grouped_mm", "deepgemm", "sonicmoe")},
        {"scattermoe": ("grouped_mm", "ScatterMoE's kernels are those of axolotl")},
    ),
    "use_scattermoe": Rule(
        nearest={"true": ({"experts": "grouped_mm"}, "ScatterMoE's kernels are those of axolotl")}
    ),
    "use_sonicmoe": Rule(values={"true": {"experts": "sonicmoe"}}),
    "rl": Rule(
        values={"dpo": {"loop": "trl_dpo"}},
        nearest={
            "ipo": ({"loop": "trl_dpo", "preference.loss_type": "ipo"}, "IPO is a loss of DPO")
        },
        why="no loop here trains it: it generates answers or has a loss of its own",
        is_blocking=True,
    ),
    "rl_beta": as_is("preference.beta"),
    "dpo_beta": as_is("preference.beta"),
    "reward_model": Rule(nearest={"true": (hf.PAIRS, hf.AS_PAIRS)}),
    "process_reward_model": Rule(
        nearest={"true": ({"task": "token-classification"}, "every token has a label")}
    ),
    "qat.activation_dtype": Rule(
        values={"int8": {"qat": "int8_int4"}, "float8": {"qat": "fp8"}}
        | {"nvfp4": {"qat": "nvfp4"}, "mxfp4": {"qat": "mxfp4"}}
    ),
    "qat.*": aside("qat.activation_dtype decides the formats"),
    "deepspeed": as_is("deepspeed"),
    "fsdp_config.offload_params": hf.FSDP_OFFLOAD,
    "fsdp_config.fsdp_offload_params": hf.FSDP_OFFLOAD,
    "fsdp_config.activation_checkpointing": hf.ROWS["fsdp_config.activation_checkpointing"],
    "fsdp*": aside(hf.ONE_GPU),
    "ddp*": aside(hf.ONE_GPU),
    "dp_shard_size": aside(hf.ONE_GPU),
    "dp_replicate_size": aside(hf.ONE_GPU),
    "context_parallel_size": impossible(hf.SEVERAL_GPUS),
    "sequence_parallel_degree": impossible(hf.SEVERAL_GPUS),
    "tensor_parallel_size": impossible(hf.SEVERAL_GPUS),
    "expert_parallel_*": impossible(hf.SEVERAL_GPUS),
    "use_ray": aside("a trial has a node of its own"),
    "ray_*": aside("a trial has a node of its own"),
    "datasets": hf.ROWS_OF_DATA,
    "test_datasets": aside(hf.DATA),
    "pretraining_dataset": hf.ROWS_OF_DATA,
    "chat_template*": aside(hf.TOKENS),
    "tokenizer_*": aside(hf.TOKENS),
    "special_tokens*": aside(hf.TOKENS),
    "tokens*": aside(hf.TOKENS),
    "eot_tokens": aside(hf.TOKENS),
    "added_tokens_overrides*": aside(hf.TOKENS),
    "resize_token_embeddings_to_32x": aside("a few rows of the embedding at most"),
    "train_on_inputs": aside("which tokens have labels changes neither memory nor time"),
    "group_by_length": aside("all rows have the full length"),
    "gptq": Rule(nearest={"true": ({"bits": 4}, "another format of 4 bits, of another speed")}),
    "reinit_weights": aside("the weights are random in any case"),
    "diffusion*": impossible("diffusion language models have a loss of their own"),
    "llmcompressor*": impossible("training of pruned weights needs llm-compressor's modifiers"),
    "tiled_mlp": Rule(
        nearest={"true": ({}, "no axis computes an MLP in tiles, so your training may need less")},
    ),
    "freeze_mm_modules": Rule(values={"true": {"vision": "frozen"}}),
    "model_config.*": aside("it changes the loss's extra terms at most"),
    "seed": as_is("seed"),
    "image_size": as_is("image_size"),
    "full_finetune": aside("it is what a file without an adapter does"),
    "max_steps": aside(hf.AMOUNT),
    "num_epochs": aside(hf.AMOUNT),
    "warmup_ratio": hf.ROWS["warmup_ratio"],
    "use_onebitllms": impossible("1-bit layers are those of another library"),
    "trust_remote_code": hf.ROWS["trust_remote_code"],
    "wandb*": aside(hf.LOGS),
    "*swanlab*": aside(hf.LOGS),
    "mlflow*": aside(hf.LOGS),
    "trackio*": aside(hf.LOGS),
    "use_*board": aside(hf.LOGS),
    "eval*": aside("evaluation is not measured; measure.evaluate_and_save would"),
    "do_*eval": aside("evaluation is not measured; measure.evaluate_and_save would"),
    "val_set_size": aside("evaluation is not measured; measure.evaluate_and_save would"),
    "dataset_*": aside(hf.DATA),
    "shuffle_merged_datasets": aside(hf.DATA),
    "skip_prepare_dataset": aside(hf.DATA),
    "streaming*": aside(hf.DATA),
    "remove_unused_columns": aside(hf.DATA),
}
"""Key of the file -> what it says; a key with dots is inside a mapping, ``*`` is any rest."""
_ASIDE = {
    hf.LOGS: """
    output_dir logging_steps save* hub_* push_dataset_to_hub strict debug resume_from_checkpoint
    auto_resume_from_checkpoints early_stopping_patience loss_watchdog* use_otel_metrics otel_*
    use_wandb provider gpu* node_count volumes branch dockerfile_commands memory* timeout* secrets
    project_name env* test_value hf_use_auth_token revision_of_model low_cpu_mem_usage device_map*
    base_model_* experimental_skip_move_to_device cls_model_config torchdistx_path llama4_*
    """,
    _OWN_KERNEL: """
    lora_*_kernel flash_attn_* fused_attn_kernel dsv4_* nvfp4_* use_dsv4* use_glm* flash_optimum
    """,
    _RECIPE: """
    cosine_* lr_* eta_min jagged_* curriculum_sampling accelerator_config* loraplus* neftune*
    torchao* max_packed_sequence_len min_sample_len total_num_tokens sample_packing_* gptq_*
    pretrain_multipack* kto_* orpo_* trl* ebft* vllm*
    center_rewards* relora_* pad_* fp8_*
    """,
}
ROWS = {**ROWS, **{key: aside(why) for why, keys in _ASIDE.items() for key in keys.split()}}
MARKS = ("base_model",)
"""A file with one of these keys is of this dialect."""
