"""ms-swift's command lines: ``swift sft``, ``swift pt`` and ``swift rlhf``. Semantics as in its
arguments/ folder (version of 2026): weights have the format of ``torch_dtype``, which also switches
autocast on, and checkpointing is on by default."""

from collections.abc import Mapping
from typing import Any

from orchestrator.planning.dialects.trainers import training_arguments as hf
from orchestrator.planning.dialects.trainers.rule import Rule, as_is, aside, impossible, one_of

DEFAULTS: Mapping[str, Any] = {
    "adapter": "lora",
    "lora.r": 8,
    "lora.lora_alpha": 32,
    "lora.target_modules": "all-linear",
    "weights": "16",
    "bf16": True,
    "checkpointing": True,
    "micro_batch": 1,
}
_TUNER = Rule(
    values={"lora": {"adapter": "lora"}, "full": {"adapter": "none"}}
    | {name: {"adapter": name} for name in ("adalora", "vera", "boft", "fourierft", "ia3")},
    nearest={"longlora": ({"adapter": "lora"}, "with whole attention")},
    why="no adapter of that name",
    is_blocking=True,
)
ROWS: Mapping[str, Rule] = {
    "command": Rule(
        values={"sft": {}, "pt": {"adapter": "none"}, "rlhf": {}},
        why="it is no training",
        is_blocking=True,
    ),
    "rlhf_type": Rule(
        values={"dpo": {"loop": "trl_dpo"}},
        nearest={"rm": (hf.PAIRS, hf.AS_PAIRS)},
        why="no loop here trains it: it generates answers or has a loss of its own",
        is_blocking=True,
    ),
    "model": as_is("model"),
    "task_type": Rule(
        values={"causal_lm": {}, "seq_cls": {"task": "sequence-classification"}},
        why="no task here is near it",
        is_blocking=True,
    ),
    "num_labels": aside("the size of the last layer only"),
    "max_length": as_is("length"),
    "tuner_type": _TUNER,
    "train_type": _TUNER,
    "sft_type": _TUNER,
    "lora_rank": as_is("lora.r"),
    "lora_alpha": as_is("lora.lora_alpha"),
    "lora_dropout": as_is("lora.lora_dropout"),
    "target_modules": as_is("lora.target_modules"),
    "modules_to_save": as_is("lora.modules_to_save"),
    "use_dora": as_is("lora.use_dora"),
    "use_rslora": as_is("lora.use_rslora"),
    "torch_dtype": Rule(
        values={
            "bfloat16": {"bf16": True, "weights": "16"},
            "float16": {"bf16": False, "fp16": True, "weights": "frozen 16"},
            "float32": {"bf16": False, "fp16": True, "weights": "32"},
        }
    ),
    "quant_bits": as_is("bits"),
    "quant_method": Rule(
        values={"bnb": {}},
        nearest={"hqq": ({}, "bitsandbytes' format"), "eetq": ({}, "bitsandbytes' format")},
    ),
    "bnb_4bit_quant_type": as_is("bnb.bnb_4bit_quant_type"),
    "bnb_4bit_use_double_quant": as_is("bnb.bnb_4bit_use_double_quant"),
    "bnb_4bit_compute_dtype": as_is("bnb.bnb_4bit_compute_dtype"),
    "attn_impl": hf.ATTENTION,
    "packing": hf.PACKED,
    "padding_free": aside("all random rows have the full length, so none is padded"),
    "freeze_vit": one_of("vision", {"true": "frozen", "false": "default"}),
    "freeze_aligner": aside("it is small beside the vision tower"),
    "freeze_llm": impossible("no axis freezes a language model below a trained tower"),
    "beta": as_is("preference.beta"),
    "loss_type": Rule(
        fact="preference.loss_type",
        values={word: word for word in ("sigmoid", "hinge", "ipo")},
        why="the loop's own loss",
    ),
    "rpo_alpha": aside("a term of the loss that takes hardly any time"),
    "deepspeed": as_is("deepspeed"),
    "sequence_parallel_size": impossible(hf.SEVERAL_GPUS),
    "use_galore": Rule(values={"true": {"optimizer": "galore_adamw"}}),
    "optimizer": Rule(values={"muon": {"optimizer": "muon"}}, why="no axis has it"),
    "use_vllm": impossible("a loop that generates answers is not measured here"),
    "dataset": hf.ROWS_OF_DATA,
    "dataset_*": aside(hf.DATA),
    "val_dataset": aside(hf.DATA),
    "split_dataset_ratio": aside(hf.DATA),
    "streaming": aside(hf.DATA),
    "cached_*": aside(hf.DATA),
    "system": aside(hf.TOKENS),
    "template": aside(hf.TOKENS),
    "agent_template": aside(hf.TOKENS),
    "loss_scale": aside("which tokens have labels changes neither memory nor time"),
}
_ASIDE = """
model_author model_name model_type load_from_cache_file dataset_num_proc lazy_tokenize use_hf stream
external_plugins adapters custom_* add_version create_checkpoint_symlink truncation_strategy
enable_thinking add_non_thinking_prefix use_chat_template label_names max_pixels problem_type
vit_gradient_checkpointing vit_lr aligner_lr init_weights new_special_tokens columns
"""
ROWS = hf.with_own({**ROWS, **{key: aside(hf.LOGS) for key in _ASIDE.split()}})
