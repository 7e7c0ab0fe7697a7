"""Hugging Face's TrainingArguments as JSON or YAML, and what the other dialects take from them."""

from collections.abc import Mapping

from jobs.techniques import AXES
from orchestrator.planning.dialects.trainers.rule import Rule, as_is, aside, impossible, one_of

ONE_GPU = "one GPU trains here, so there is nothing to share among GPUs"
SEVERAL_GPUS = "it needs several GPUs, and a trial has one"
LOGS = "it is about logs, names or files, which a measurement decides itself"
TOKENS = "the rows are random, so no tokenizer reads them"
DATA = "the rows are random and as long as the sequence length, because the data set is not here"
AMOUNT = "a measurement decides how long it runs"
_ADAM_8BIT = "adamw_bnb_8bit"


def optimizers() -> dict[str, str]:
    """``optim`` -> the value of our axis that sets it alone."""
    named = {}
    for value, variant in AXES["optimizer"].variants.items():
        name = variant.training_arguments.get("optim")
        if name and name not in named:
            named[str(name)] = value
    return {**named, "adamw_8bit": _ADAM_8BIT, "muon": "muon", "rmsprop_32bit": "rmsprop_bnb_32bit"}


NEAR_OPTIMIZERS: Mapping[str, tuple[str, str]] = {
    "adamw_hf": ("adamw_torch", "transformers has no AdamW of its own any more"),
    "adamw_apex_fused": ("adamw_torch_fused", "another fused kernel with the same states"),
    "adamw_anyprecision": ("adamw_torch", "its states may have 16 bits"),
    "optimi_adamw": ("adamw_torch", "the same states, and Kahan sums beside them"),
    "ao_adamw_4bit": ("adamw_torch_4bit", "the same optimizer of torchao"),
    "ao_adamw_8bit": ("adamw_torch_8bit", "the same optimizer of torchao"),
    "ao_adamw_fp8": ("adamw_torch_8bit", "its states are in FP8 instead of 8-bit integers"),
    "adopt_adamw": ("adamw_torch", "ADOPT has the states of AdamW"),
    "q_galore_adamw8bit": ("galore_adamw_8bit", "its projections have 32 bits"),
    "flash_adamw": ("adamw_torch_8bit", "its states are compressed by another library"),
    "came_pytorch": ("adafactor", "CAME has one more factored state"),
}
OPTIMIZER = one_of(
    "optimizer", optimizers(), NEAR_OPTIMIZERS, otherwise="no value of the axis optimizer is near"
)
ATTENTION = one_of(
    "attention",
    {
        "flash_attention_2": "flash_attention_2",
        "fa2": "flash_attention_2",
        "flash_attn": "flash_attention_2",
        "flash_attention_3": "flash_attention_3",
        "kernels-community/flash-attn2": "hub_flash_attention_2",
        "kernels-community/vllm-flash-attn3": "hub_flash_attention_3",
        "sdpa": "sdpa",
        "eager": "eager",
        "flex_attention": "flex_attention",
        "xformers": "xformers",
        "auto": "auto",
        "disabled": "eager",
    },
    {
        "kernels-community/flash-attn": (
            "hub_flash_attention_2",
            "an earlier name of the same kernel",
        ),
        "kernels-community/flash-attn3": (
            "hub_flash_attention_3",
            "another build of FlashAttention-3",
        ),
    },
    otherwise="no value of the axis attention is near",
)
_LIGER = {
    **{f"liger.{name}": True for name in ("rope", "rms_norm", "layer_norm", "mlp")},
    "loss": "liger",
}
_PACKED = "random rows of the full length stand for packed ones, without attention's row borders"
PACKED = Rule(nearest={"true": ({"packed": True}, _PACKED)})
ROWS_OF_DATA = as_is("data", "random rows of the full length, because the data set is not here")
_WORKERS = "the axis dataloader has 0, 1, 2 or 4 workers"
FSDP_OFFLOAD = Rule(
    nearest={"true": ({"fsdp_offload": True}, "DeepSpeed's offload; FSDP's is for several GPUs")}
)
PAIRS = {"task": "sequence-classification", "rows_of_a_sample": 2}
AS_PAIRS = "classification of two rows for each pair, which the micro-batch counts"

ROWS: Mapping[str, Rule] = {
    "model_name_or_path": as_is("model"),
    "max_seq_length": as_is("length"),
    "block_size": as_is("length"),
    "dataset_name": ROWS_OF_DATA,
    "train_file": ROWS_OF_DATA,
    "per_device_train_batch_size": as_is("micro_batch"),
    "gradient_accumulation_steps": as_is("accumulation"),
    "bf16": one_of("bf16", {"true": True, "false": False, "auto": True}),
    "fp16": one_of("fp16", {"true": True, "false": False, "auto": False}),
    "tf32": one_of("tf32", {"true": True, "false": False, "auto": True}),
    "optim": OPTIMIZER,
    "gradient_checkpointing": as_is("checkpointing"),
    "gradient_checkpointing_kwargs.use_reentrant": as_is("reentrant"),
    "gradient_checkpointing_kwargs.*": aside("it changes neither memory nor speed by much"),
    "activation_offloading": one_of("offloading", {"true": "offload", "false": None}),
    "torch_compile": as_is("compile"),
    "torch_compile_backend": as_is("compile.backend"),
    "torch_compile_mode": as_is("compile.mode"),
    "dataloader_num_workers": one_of(
        "workers",
        {str(number): number for number in (0, 1, 2, 4)},
        {"3": (2, _WORKERS), **{str(number): (4, _WORKERS) for number in range(5, 129)}},
    ),
    "dataloader_pin_memory": as_is("pin_memory"),
    "dataloader_prefetch_factor": aside("the axis dataloader sets it beside the workers"),
    "dataloader_persistent_workers": aside("the axis dataloader sets it beside the workers"),
    "use_liger_kernel": Rule(values={"true": _LIGER}),
    "liger_kernel_config.rope": as_is("liger.rope"),
    "liger_kernel_config.rms_norm": as_is("liger.rms_norm"),
    "liger_kernel_config.layer_norm": as_is("liger.layer_norm"),
    "liger_kernel_config.swiglu": as_is("liger.mlp"),
    "liger_kernel_config.geglu": as_is("liger.mlp"),
    "liger_kernel_config.fused_linear_cross_entropy": one_of("loss", {"true": "liger"}),
    "liger_kernel_config.*": aside("another kernel of Liger for the loss or other models"),
    "use_kernels": one_of("kernels", {"true": "hub"}),
    "group_by_length": Rule(values={"true": {"packing": "group_by_length"}}),
    "seed": as_is("seed"),
    "data_seed": aside("the rows are random"),
    "fsdp": aside(ONE_GPU),
    "fsdp_config.activation_checkpointing": one_of("checkpointing", {"true": True}),
    "fsdp_config.fsdp_activation_checkpointing": one_of("checkpointing", {"true": True}),
    "fsdp_config.offload_params": FSDP_OFFLOAD,
    "fsdp_config.fsdp_offload_params": FSDP_OFFLOAD,
    "fsdp_config.*": aside(ONE_GPU),
    "deepspeed": as_is("deepspeed"),
    "ddp_*": aside(ONE_GPU),
    "local_rank": aside(ONE_GPU),
    "parallelism_config": aside(ONE_GPU),
    "parallelism_config.*": aside(ONE_GPU),
    "auto_find_batch_size": aside("the micro-batch is an axis"),
    "use_cpu": aside("a trial uses the GPU where its node has one"),
    "wandb*": aside(LOGS),
    "swanlab*": aside(LOGS),
    "trackio*": aside(LOGS),
    "run_name": aside(LOGS),
    "warmup_ratio": aside("it moves the learning rate only, which changes no step's time"),
    "overwrite_output_dir": aside(LOGS),
    "save_safetensors": aside(LOGS),
    "evaluation_strategy": aside(LOGS),
    "num_train_epochs": aside(AMOUNT),
    "max_steps": aside(AMOUNT),
    "tokenizer_*": aside(TOKENS),
    "neftune_noise_alpha": as_is("arguments.neftune_noise_alpha"),
    "use_unsloth": impossible("Unsloth replaces the model's own code, and no trial can run it"),
    "trust_remote_code": aside("the architecture is one of transformers"),
}
"""Key of TrainingArguments -> what it says. Any other field is taken under training_arguments."""


def with_own(rows: Mapping[str, Rule]) -> Mapping[str, Rule]:
    """The table of a dialect that takes all TrainingArguments: its own rows go first."""
    return {**rows, **{key: rule for key, rule in ROWS.items() if key not in rows}}


MARKS = ("per_device_train_batch_size", "learning_rate", "optim", "bf16", "num_train_epochs")
"""A file with one of these keys, and with none that marks another dialect, is of this one."""
