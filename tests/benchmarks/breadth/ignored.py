"""Keys of axolotl that change neither the memory nor the speed of a step on one GPU, and why."""

from __future__ import annotations

from collections.abc import Mapping

from tests.benchmarks.breadth.example import Example

IGNORED: Mapping[str, tuple[str, ...]] = {
    "names of models, tokenizers and files": (
        "base_model_ignore_patterns",
        "cls_model_config",
        "hf_use_auth_token",
        "hub_model_id",
        "model_type",
        "output_dir",
        "processor_type",
        "revision_of_model",
        "tokenizer_config",
        "tokenizer_legacy",
        "tokenizer_type",
        "tokenizer_use_fast",
        "tokenizer_use_mistral_common",
    ),
    "how the rows are made, before the training begins": (
        "chat_template",
        "dataset_exact_deduplication",
        "dataset_prepared_path",
        "eot_tokens",
        "remove_unused_columns",
        "shuffle_merged_datasets",
        "skip_prepare_dataset",
    ),
    "which tokens mean an end or padding": ("special_tokens",),
    "how long the training lasts": ("max_steps", "num_epochs"),
    "when it ends early": (
        "early_stopping_patience",
        "loss_watchdog_patience",
        "loss_watchdog_threshold",
    ),
    "when it saves and logs": (
        "auto_resume_from_checkpoints",
        "debug",
        "logging_steps",
        "save_only_model",
        "save_safetensors",
        "save_steps",
        "save_strategy",
        "save_total_limit",
        "saves_per_epoch",
        "use_otel_metrics",
        "use_swanlab",
        "use_tensorboard",
        "use_wandb",
    ),
    "when it evaluates, and what an evaluation prints": (
        "do_causal_lm_eval",
        "eval_causal_lm_metrics",
        "eval_max_new_tokens",
        "eval_sample_packing",
        "eval_steps",
        "eval_strategy",
        "eval_table_size",
        "evals_per_epoch",
        "evaluation_strategy",
    ),
    "the shape of the learning rate over the steps": (
        "cosine_constant_lr_ratio",
        "cosine_min_lr_ratio",
        "lr_quadratic_warmup",
    ),
    "about several processes; one GPU has one": ("ddp", "ddp_find_unused_parameters"),
    "where a checkpoint is loaded first": (
        "device_map",
        "experimental_skip_move_to_device",
        "low_cpu_mem_usage",
    ),
    "how strictly axolotl checks": ("strict",),
    # monkeypatch/attention/flex_attn.py returns with any other PyTorch, and axolotl needs 2.11.
    "options that axolotl hands on with PyTorch 2.6 alone": ("flex_attn_compile_kwargs",),
    "a key that axolotl does not read, or no longer": (
        "batch_size",
        "flash_attn_rms_norm",
        "full_finetune",
        "test_value",
    ),
}
"""Reason -> keys."""

SERVICES = ("comet_", "mlflow_", "otel_", "swanlab_", "trackio_", "wandb_")
"""Prefixes of keys that say where figures are sent."""


def ignore_what_does_not_matter(example: Example) -> None:
    """Count the keys that change nothing here as used."""
    for keys in IGNORED.values():
        example.ignore(*keys)
    for key in example.unused():
        if key.startswith(SERVICES):
            example.ignore(key)
