"""TRL's Trainers as rows of the axis loop: SFTTrainer, and DPOTrainer for pairs of answers."""

from collections.abc import Mapping
from typing import Any, Literal

from jobs.finetuning.trl.parameters import SAME_DPO, contradiction
from jobs.record import Column
from jobs.spec import Hook
from jobs.techniques.hooks import hooks_of, services_of
from jobs.techniques.variant import AXES, COLUMNS, INCOMPATIBLE, OTHER_WORKLOAD, Family, Variant
from jobs.techniques.written_form import written

_REQUIRES = ("task:causal-lm", "package:trl", "trl>=1.16")
_ARGUMENTS = """
bf16 gradient_checkpointing learning_rate logging_steps lr_scheduler_kwargs torch_empty_cache_steps
use_liger_kernel
"""
_OWN_DEFAULTS = {"activations": "checkpoint", "precision": "bf16"}
"""What TRL's configuration classes set where the user does not (trl 1.16)."""
_DECIDED = {
    **dict.fromkeys(_ARGUMENTS.split(), "it is a training argument, or the choice of an axis"),
    "max_length": "data.file.max_length and the axis sequence_length decide it",
    "model_init_kwargs": "the key model and the axes decide it",
    "pad_token": "the tokenizer decides it",
    "trust_remote_code": "the key model decides it",
    "truncation_mode": "TRL is about to remove it",
}
"""Field of both configuration classes that the user may not set -> the reason."""
_DECIDED_FOR_SFT = {
    **_DECIDED,
    "chat_template_path": "put a chat_template.jinja beside the tokenizer",
    "dataset_kwargs": "a trial prepares the rows",
    "dataset_text_field": "data.file.columns names the column",
    "eval_packing": "an evaluation has the batching of the training",
    "packing": "batching: packed decides it",
    "padding_free": "batching: padding_free decides it",
}
_DECIDED_FOR_DPO = {
    **_DECIDED,
    "padding_free": "TRL has taken it out of this Trainer, and pads in any case",
    "precompute_ref_batch_size": "the micro-batch decides it: a larger batch could need more "
    "memory before the training than the training itself",
}
_SAME_SFT = frozenset({"activation_offloading", "dataset_num_proc", "pad_to_multiple_of"})
"""Parameters of ``SFTConfig`` that change only the time or the memory of the training."""
_Loss = Literal[
    "sigmoid",
    "hinge",
    "ipo",
    "exo_pair",
    "nca_pair",
    "robust",
    "bco_pair",
    "sppo_hard",
    "aot",
    "aot_unpaired",
    "apo_zero",
    "apo_down",
    "discopop",
    "sft",
    "sigmoid_norm",
]


def _sft(parameters: Mapping[str, Any]) -> Variant:
    arguments = {"parameters": dict(parameters)}
    return Variant(
        doc="TRL's SFTTrainer, with its chat templates, prompt masks, packing and chunked loss; "
        "all other settings are those of the trial",
        hooks={
            "rows": Hook("trl_sft_rows", arguments),
            "arguments": Hook("trl_sft_arguments", arguments),
            "loop": Hook("trl_sft_loop"),
        },
        requires=_REQUIRES,
        numerical_effect="rounding" if _SAME_SFT.issuperset(parameters) else "training",
        traits=("trl", OTHER_WORKLOAD),
        own_defaults=_OWN_DEFAULTS,
    )


def _dpo(parameters: Mapping[str, Any]) -> Variant:
    arguments = {"trainer": "dpo", "parameters": dict(parameters)}
    traits = ["trl", "preferences", OTHER_WORKLOAD]
    if parameters.get("sync_ref_model"):
        traits.append("synced_reference")
    if not parameters.get("precompute_ref_log_probs"):
        traits.append("reference_pass")
    on_gpu = ["cuda"] if parameters.get("activation_offloading") else []
    learned = {key: value for key, value in parameters.items() if key not in SAME_DPO}
    return Variant(
        doc="TRL's DPOTrainer, for pairs of a chosen and a rejected answer: a sample is a pair; "
        "all other settings are those of the trial. Without an adapter, a copy of the model stays "
        "in memory as the reference",
        hooks={
            "preferences": Hook("trl_preference_rows", arguments),
            "arguments": Hook("trl_preference_arguments", arguments),
            "loop": Hook("trl_preference_loop", {"trainer": "dpo"}),
        },
        requires=(*_REQUIRES, *on_gpu),
        numerical_effect="training",
        recipe=written("trl_dpo", learned),
        traits=tuple(traits),
        own_defaults=_OWN_DEFAULTS,
    )


AXES["loop"].variants.update(trl_sft=_sft({}), trl_dpo=_dpo({}))
AXES["loop"].families.update(
    trl_sft=Family(
        doc="TRL's SFTTrainer with settings of SFTConfig, such as assistant_only_loss",
        config_class="trl.trainer.sft_config:SFTConfig",
        build=_sft,
        decided=_DECIDED_FOR_SFT,
    ),
    trl_dpo=Family(
        doc="TRL's DPOTrainer with settings of DPOConfig, such as beta",
        config_class="trl.trainer.dpo_config:DPOConfig",
        build=_dpo,
        decided=_DECIDED_FOR_DPO,
        # The class itself declares these too widely.
        extra={
            "f_divergence_type": Literal[
                "reverse_kl", "forward_kl", "js_divergence", "alpha_divergence"
            ],
            "loss_type": _Loss | list[_Loss],
        },
        problem=contradiction,
    ),
)
hooks_of("jobs.finetuning.trl.sft_rows", {"trl_sft_rows": "sft_rows"})
hooks_of(
    "jobs.finetuning.trl.parameters",
    {"trl_sft_arguments": "sft_config", "trl_preference_arguments": "dpo_config"},
)
hooks_of("jobs.finetuning.trl.sft_loop", {"trl_sft_loop": "train"})
hooks_of("jobs.finetuning.trl.dpo_rows", {"trl_preference_rows": "dpo_rows"})
hooks_of("jobs.finetuning.trl.dpo_loop", {"trl_preference_loop": "train"})
services_of("jobs.finetuning.trl.parameters", "checked_sft", "checked_dpo")
services_of(
    "jobs.finetuning.trl.raw_rows", "pair_problem", "prompt_of_pair", "implicit_prompt_note"
)
services_of("jobs.finetuning.trl.raw_rows", "without_padding", "padding_tokenizer")
services_of("jobs.finetuning.trl.sft_loop", "sft_trainer")
services_of("jobs.finetuning.trl.dpo_loop", "dpo_trainer", "reference_copy", "drop_copied_adapter")

COLUMNS += (
    Column.number(
        "rows_left_out_share",
        "Share of the rows that TRL leaves out, because a prompt as long as the limit leaves no "
        "room for an answer; 0 where rows are packed, null for other loops",
    ),
    Column.text(
        "reference",
        "What a preference training compared with: a frozen model (model), the model without its "
        "adapter (adapter off), or figures from before the training (computed before); null for "
        "other trainings",
    ),
    Column.nbytes(
        "reference_model_bytes",
        "Bytes of the parameters and buffers of a preference training's reference model, which "
        "stays in memory; 0 without such a model, null for other trainings",
    ),
    Column.seconds(
        "reference_seconds",
        "Time that the reference's log-probabilities of all rows took before the training; null "
        "where each step computes its own",
    ),
    Column.text(
        "preference_loss",
        "Losses that a preference training added up, by TRL's names; null for other trainings",
    ),
    Column.number(
        "preference_beta",
        "Weight of the reference in a preference training's loss; null for other trainings",
    ),
)
_PLAIN_AGAIN = (
    "In each step TRL switches checkpointing off for the reference, and then on again without the"
)
INCOMPATIBLE |= {
    "preference_batches_are_padded": (
        ("preferences", "trainer_batches"),
        "TRL's preference trainers pad random pairs: they pack nothing, join no rows, and have no "
        "input_ids by whose length pairs could be grouped.",
    ),
    "preferences_without_deepspeed": (
        ("preferences", "deepspeed", "not peft"),
        "Without an adapter, the reference model of a preference training would need a DeepSpeed "
        "engine of its own, which this loop does not make.",
    ),
    # trl.models.utils.disable_gradient_checkpointing switches it on again with plain settings.
    "preferences_checkpoint_whole_layers": (
        ("reference_pass", "selective"),
        f"{_PLAIN_AGAIN} choice of operators: whole layers would be recomputed.",
    ),
    "preferences_checkpoint_every_layer": (
        ("reference_pass", "every_n_layers"),
        f"{_PLAIN_AGAIN} choice of layers: every layer would be recomputed.",
    ),
    "preferences_checkpoint_on_the_gpu": (
        ("reference_pass", "offload"),
        f"{_PLAIN_AGAIN} move to the host: the layers' inputs would stay on the GPU.",
    ),
    # trl.DPOTrainer raises this.
    "synced_reference_is_a_model": (
        ("synced_reference", "peft"),
        "With an adapter the reference is the model without it, and no model that "
        "sync_ref_model could change.",
    ),
}
