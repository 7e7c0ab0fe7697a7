"""LLaMA-Factory's YAML, of its first and of its v1 format. Semantics as in its hparams and model/
folders (version of 2026): trained weights get 32 bits unless ``pure_bf16``, and checkpointing is on
and reentrant by default."""

from collections.abc import Mapping
from typing import Any

from orchestrator.planning.dialects.trainers import training_arguments as hf
from orchestrator.planning.dialects.trainers.rule import Rule, as_is, aside, impossible, one_of

DEFAULTS: Mapping[str, Any] = {
    "adapter": "lora",
    "lora.r": 8,
    "lora.target_modules": "all-linear",
    "weights": "frozen 16",
    "checkpointing": True,
    "reentrant": True,
    "length": 2048,
    "micro_batch": 8,
    "accumulation": 1,
}
V1_DEFAULTS: Mapping[str, Any] = {
    "weights": "frozen 16",
    "bf16": True,
    "checkpointing": True,
    "length": 2048,
    "micro_batch": 1,
    "accumulation": 1,
}
_NO_TRAINING = "it is no training"
_OWN_LOSS = "no loop here trains it"
_VALUES_ONLY = "it decides the first values of the adapter only"
_LIGER = hf.ROWS["use_liger_kernel"]

_SHARED: Mapping[str, Rule] = {
    "cutoff_len": as_is("length"),
    "template": aside(hf.TOKENS),
    "dataset": hf.ROWS_OF_DATA,
    "dataset_*": aside(hf.DATA),
    "train_dataset": hf.ROWS_OF_DATA,
}
ROWS: Mapping[str, Rule] = {
    **_SHARED,
    "model_name_or_path": as_is("model"),
    "stage": Rule(
        values={"sft": {}, "pt": {}, "dpo": {"loop": "trl_dpo"}},
        nearest={"rm": (hf.PAIRS, hf.AS_PAIRS)},
        why=_OWN_LOSS,
        is_blocking=True,
    ),
    "finetuning_type": Rule(
        values={
            "lora": {"adapter": "lora"},
            "full": {"adapter": "none"},
            "freeze": {"adapter": "none", "trainable.layers": 2},
            "oft": {"adapter": "oft"},
        },
        why="no adapter of that name",
        is_blocking=True,
    ),
    "lora_rank": as_is("lora.r"),
    "lora_alpha": as_is("lora.lora_alpha"),
    "lora_dropout": as_is("lora.lora_dropout"),
    "lora_target": as_is("lora.target_modules"),
    "additional_target": as_is("lora.modules_to_save"),
    "use_rslora": as_is("lora.use_rslora"),
    "use_dora": as_is("lora.use_dora"),
    "pissa_*": aside(_VALUES_ONLY),
    "loraplus_*": aside("it changes learning rates only"),
    "oft_block_size": as_is("oft.oft_block_size"),
    "oft_rank": as_is("oft.r"),
    "oft_target": as_is("oft.target_modules"),
    "freeze_trainable_layers": as_is("trainable.layers"),
    "freeze_trainable_modules": Rule(values={"all": {}}, why="all modules of a layer are trained"),
    "freeze_extra_modules": as_is("trainable.also"),
    "use_llama_pro": aside("freeze_trainable_layers decides which layers are trained"),
    "freeze_vision_tower": one_of("vision", {"true": "frozen", "false": "default"}),
    "freeze_multi_modal_projector": aside("it is small beside the vision tower"),
    "freeze_language_model": impossible("no axis freezes a language model below a trained tower"),
    "quantization_bit": as_is("bits"),
    "quantization_method": Rule(
        values={"bnb": {}, "bitsandbytes": {}},
        nearest={"hqq": ({}, "bitsandbytes' format"), "eetq": ({}, "bitsandbytes' format")},
    ),
    "quantization_type": as_is("bnb.bnb_4bit_quant_type"),
    "double_quantization": as_is("bnb.bnb_4bit_use_double_quant"),
    "upcast_layernorm": aside("a few weights only"),
    "pure_bf16": Rule(values={"true": {"bf16": True, "weights": "16"}}),
    "fp8": Rule(values={"true": {"fp8": True}}),
    "fp8_*": aside("torchao converts the linear layers"),
    "flash_attn": hf.ATTENTION,
    "disable_gradient_checkpointing": one_of("checkpointing", {"true": False, "false": True}),
    "use_reentrant_gc": as_is("reentrant"),
    "gradient_checkpointing": aside("disable_gradient_checkpointing decides it"),
    "gradient_checkpointing_kwargs*": aside("use_reentrant_gc decides it"),
    "use_unsloth_gc": Rule(values={"true": {"offloading": "checkpoint_offload"}}),
    "enable_liger_kernel": _LIGER,
    "packing": hf.PACKED,
    "neat_packing": hf.PACKED,
    "pref_beta": as_is("preference.beta"),
    "pref_loss": one_of(
        "preference.loss_type",
        {"sigmoid": "sigmoid", "hinge": "hinge", "ipo": "ipo"},
        otherwise=_OWN_LOSS,
    ),
    "pref_ftx": aside("a term of the loss that takes hardly any time"),
    "use_galore": Rule(values={"true": {"optimizer": "galore_adamw"}}),
    "galore_layerwise": as_is("optimizer_layerwise"),
    "galore_*": aside("the axis optimizer has GaLore's own rank"),
    "use_apollo": Rule(values={"true": {"optimizer": "apollo_adamw"}}),
    "apollo_layerwise": as_is("optimizer_layerwise"),
    "apollo_*": aside("the axis optimizer has APOLLO's own rank"),
    "use_muon": Rule(values={"true": {"optimizer": "muon"}}),
    "use_adam_mini": Rule(
        nearest={"true": ({"optimizer": "adamw_torch"}, "Adam-mini has half of its states")}
    ),
    "use_badam": Rule(
        nearest={"true": ({"trainable.layers": 1}, "BAdam changes the trained block at times")}
    ),
    "badam_*": aside("parameters of use_badam"),
    "use_dft_loss": Rule(nearest={"true": ({}, "weights of tokens take hardly any time")}),
    "use_asft_loss": impossible("its loss needs a second model beside the trained one"),
    "asft_alpha": aside("a parameter of use_asft_loss"),
    "use_eaft_loss": Rule(values={"true": {"loss": "eaft"}}),
    "eaft_alpha": as_is("eaft.alpha"),
    "mixture_of_depths": impossible("layers that skip tokens are those of another library"),
    "use_mca": impossible("Megatron's layers are those of another library"),
    "*_model_parallel_size": impossible(hf.SEVERAL_GPUS),
    "use_kt": impossible("KTransformers computes experts on the CPU"),
    "kt_*": aside("parameters of use_kt"),
    "do_train": Rule(values={"true": {}}, why=_NO_TRAINING),
    "do_predict": impossible(_NO_TRAINING),
    "export_dir": impossible(_NO_TRAINING),
    "infer_backend": impossible(_NO_TRAINING),
    "deepspeed": as_is("deepspeed"),
    "image_max_pixels": as_is("image_pixels"),
    "ray_*": aside("a trial has a node of its own"),
}
V1_ROWS: Mapping[str, Rule] = {
    **_SHARED,
    "model": as_is("model"),
    "micro_batch_size": as_is("micro_batch"),
    "global_batch_size": aside("the accumulation is an axis"),
    "model_class": Rule(values={"llm": {}, "cls": {"task": "sequence-classification"}}),
    "peft_config.name": Rule(
        values={"lora": {"adapter": "lora"}, "freeze": {"trainable.layers": 2}},
        why="no adapter of that name",
        is_blocking=True,
    ),
    "peft_config.r": as_is("lora.r"),
    "peft_config.lora_alpha": as_is("lora.lora_alpha"),
    "peft_config.lora_dropout": as_is("lora.lora_dropout"),
    "peft_config.target_modules": as_is("lora.target_modules"),
    "peft_config.freeze_trainable_layers": as_is("trainable.layers"),
    "peft_config.export_dir": impossible(_NO_TRAINING),
    "peft_config.*": aside("it is about files or first values"),
    "quant_config.name": Rule(values={"bnb": {}, "auto": {}}),
    "quant_config.quantization_bit": as_is("bits"),
    "kernel_config.name": Rule(
        values={"liger_kernel": _LIGER.values["true"]},
        why="kernels of LLaMA-Factory that no axis has: your training may be faster",
    ),
    "kernel_config.*": aside("kernels of LLaMA-Factory that no axis has"),
    "dist_config.name": Rule(
        values={"deepspeed": {}}, nearest={"fsdpturbo": ({}, hf.ONE_GPU)}, why=hf.ONE_GPU
    ),
    "dist_config.config_file": as_is("deepspeed"),
    "dist_config.cp_size": impossible(hf.SEVERAL_GPUS),
    "dist_config.ep_size": impossible(hf.SEVERAL_GPUS),
    "dist_config.*": aside(hf.ONE_GPU),
    "cp_size": impossible(hf.SEVERAL_GPUS),
    "cp_mode": aside(hf.ONE_GPU),
    "init_config.*": aside(hf.ONE_GPU),
    "optim_config.name": hf.OPTIMIZER,
    "optim_config.*": aside("it changes the numbers of an update only"),
    "batching_strategy": Rule(
        values={"normal": {}, "padding_free": {}},
        why="all random rows have the full length, so batches are equal",
    ),
    "use_v1_kernels": aside("kernels of LLaMA-Factory that no axis has"),
    "flash_attn": hf.ATTENTION,
    "freeze_language_model": ROWS["freeze_language_model"],
    "freeze_vision_tower": ROWS["freeze_vision_tower"],
    "freeze_multi_modal_projector": ROWS["freeze_multi_modal_projector"],
    "deepspeed": as_is("deepspeed"),
}
_ASIDE = {
    hf.LOGS: """
    plot_loss save_only_model max_samples overwrite_cache preprocessing_num_workers tokenized_path
    adapter_name_or_path resume_* streaming buffer_size val_size eval_dataset compute_accuracy
    predict_with_generate sample_backend max_new_tokens export_* media_dir mix_strategy cache_dir
    generating_args* ref_model* print_param_status train_on_prompt mask_history add_tokens
    video_max_pixels video_fps video_maxlen new_special_tokens_config skip_special_tokens
    """
}
_NAMED = {key: aside(why) for why, keys in _ASIDE.items() for key in keys.split()}
ROWS = hf.with_own({**ROWS, **_NAMED})
V1_ROWS = hf.with_own({**V1_ROWS, **_NAMED})
MARKS = ("finetuning_type", "stage", "template", "export_dir", "infer_backend")
V1_MARKS = ("model_class", "train_dataset", "dist_config")
