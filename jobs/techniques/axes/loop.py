"""Loop axis: the code that runs the training. Its hooks are in ``jobs.loops.hooks``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.spec import Hook
from jobs.techniques.axes.fine_tuning.preferences import preference_family, preference_row
from jobs.techniques.base import OTHER_WORKLOAD, Axis, Family, NumericalEffect, Variant

_SAME_TRAINING = frozenset({"activation_offloading", "dataset_num_proc", "pad_to_multiple_of"})
"""Parameters of ``trl_sft`` that do not change the training, but only the time or the memory."""
_ARGUMENT = "it is a training argument, or the choice of an axis"
_NOT_ALLOWED = {
    **dict.fromkeys(
        (
            "bf16",
            "gradient_checkpointing",
            "learning_rate",
            "logging_steps",
            "lr_scheduler_kwargs",
            "torch_empty_cache_steps",
            "use_liger_kernel",
        ),
        _ARGUMENT,
    ),
    "chat_template_path": "put a chat_template.jinja beside the tokenizer",
    "dataset_kwargs": "a trial prepares the rows",
    "dataset_text_field": "data.file.columns names the column",
    "eval_packing": "nothing is evaluated during a measurement",
    "max_length": "data.file.max_length and the axis sequence_length decide it",
    "model_init_kwargs": "the key model and the axes decide it",
    "packing": "batching: packed decides it",
    "pad_token": "the tokenizer decides it",
    "padding_free": "batching: padding_free decides it",
    "trust_remote_code": "the key model decides it",
    "truncation_mode": "TRL is about to remove it",
}
"""Field of ``SFTConfig`` that the user may not set -> the reason."""
_SFT_DOC = (
    "TRL's SFTTrainer, with its chat templates, prompt masks, packing and chunked loss; all other "
    "settings are those of the trial"
)


def _sft(parameters: Mapping[str, Any]) -> Variant:
    """The row of ``SFTTrainer`` with parameters of its configuration class."""
    effect: NumericalEffect = "rounding"
    if not _SAME_TRAINING.issuperset(parameters):
        effect = "training"
    arguments = {"parameters": dict(parameters)}
    return Variant(
        doc=_SFT_DOC,
        hooks={
            "rows": Hook("trl_sft_rows", arguments),
            "arguments": Hook("trl_sft_arguments", arguments),
            "loop": Hook("trl_sft_loop"),
        },
        requires=("task:causal-lm", "package:trl", "trl>=1.16"),
        numerical_effect=effect,
        traits=("trl", OTHER_WORKLOAD),
    )


LOOP = Axis(
    name="loop",
    doc="The training loop",
    default="trainer",
    variants={
        "trainer": Variant(doc="transformers.Trainer", hooks={"loop": Hook("trainer_loop")}),
        "trainer_async": Variant(
            doc="transformers.Trainer without synchronisation in a step: no NaN check of the loss, "
            "non-blocking copies; the host prepares the next step while the GPU works",
            training_arguments={
                "logging_nan_inf_filter": False,
                "accelerator_config": {"non_blocking": True},
            },
            hooks={"loop": Hook("trainer_loop")},
        ),
        "accelerate": Variant(
            doc="A plain PyTorch loop through accelerate.Accelerator, without clipping, "
            "learning-rate schedule and logging",
            hooks={"loop": Hook("accelerate_loop")},
            traits=("accelerate",),
        ),
        "trl_sft": _sft({}),
        "trl_dpo": preference_row("dpo", {}),
    },
    families={
        "trl_sft": Family(
            doc="TRL's SFTTrainer with settings of SFTConfig, such as assistant_only_loss",
            config_class="trl.trainer.sft_config:SFTConfig",
            build=_sft,
            decided=_NOT_ALLOWED,
        ),
        "trl_dpo": preference_family("dpo"),
    },
)
