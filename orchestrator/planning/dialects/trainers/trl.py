"""TRL's command lines (``trl sft``, or a script with its arguments) and their YAML. Weights have 32
bits unless ``dtype`` says otherwise, as in trl.trainer.utils.create_model_from_path."""

from collections.abc import Mapping
from typing import Any

from orchestrator.planning.dialects.trainers import training_arguments as hf
from orchestrator.planning.dialects.trainers.rule import Rule, as_is, aside, impossible, one_of

DEFAULTS: Mapping[str, Any] = {
    "bf16": True,
    "checkpointing": True,
    "length": 1024,
    "micro_batch": 8,
    "accumulation": 1,
    "loop": "trl_sft",
    "lora.r": 16,
}
_DTYPE = one_of(
    "weights",
    {"bfloat16": "16", "float32": "32", "auto": "16"},
    {"float16": ("16", "bfloat16, which trains without loss scaling")},
)
ROWS: Mapping[str, Rule] = {
    "command": one_of(
        "loop",
        {"sft": "trl_sft", "dpo": "trl_dpo"},
        otherwise="no loop here trains it: it generates answers or has a loss of its own",
    ),
    "model_name_or_path": as_is("model"),
    "max_length": as_is("length"),
    "max_seq_length": as_is("length"),
    "dtype": _DTYPE,
    "torch_dtype": _DTYPE,
    "model_init_kwargs.dtype": _DTYPE,
    "attn_implementation": hf.ATTENTION,
    "use_peft": one_of("adapter", {"true": "lora"}),
    "lora_r": as_is("lora.r"),
    "lora_alpha": as_is("lora.lora_alpha"),
    "lora_dropout": as_is("lora.lora_dropout"),
    "lora_target_modules": as_is("lora.target_modules"),
    "lora_target_parameters": as_is("lora.target_parameters"),
    "lora_modules_to_save": as_is("lora.modules_to_save"),
    "lora_task_type": aside("the task of the model decides it"),
    "use_rslora": as_is("lora.use_rslora"),
    "use_dora": as_is("lora.use_dora"),
    "load_in_4bit": Rule(values={"true": {"bits": 4}}),
    "load_in_8bit": Rule(values={"true": {"bits": 8}}),
    "bnb_4bit_quant_type": as_is("bnb.bnb_4bit_quant_type"),
    "use_bnb_nested_quant": as_is("bnb.bnb_4bit_use_double_quant"),
    "packing": Rule(nearest={"true": ({}, "random rows of the full length stand for packed ones")}),
    "padding_free": aside("all random rows have the full length, so none is padded"),
    "loss_type": Rule(
        fact="preference.loss_type",
        values={word: word for word in ("sigmoid", "hinge", "ipo", "sigmoid_norm")},
        why="the loop's own loss",
    ),
    "beta": as_is("preference.beta"),
    "precompute_ref_log_probs": as_is("preference.precompute_ref_log_probs"),
    "deepspeed": as_is("deepspeed"),
    "use_vllm": impossible("a loop that generates answers is not measured here"),
    "dataset_name": hf.ROWS_OF_DATA,
    "dataset_*": aside(hf.DATA),
    "*_only_loss": aside("which tokens have labels changes neither memory nor time"),
    "eos_token": aside(hf.TOKENS),
    "pad_token": aside(hf.TOKENS),
    "chat_template_path": aside(hf.TOKENS),
    "model_revision": aside("the weights are random"),
}
ROWS = hf.with_own(ROWS)
MARKS = ("use_peft", "lora_r", "lora_target_modules", "max_length", "assistant_only_loss")
