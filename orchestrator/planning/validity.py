"""Combinations that cannot run, as a table of rules with reasons."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from jobs.spec import Choice, UserCode
from jobs.techniques import INCOMPATIBLE, Variant

Choices = Mapping[str, Choice]
Variants = Mapping[str, Variant]
"""Axis -> the variant chosen on it. An axis that the user's own arguments decide is absent."""


class ChosenVariants(dict[str, Variant]):
    """Axis -> the variant chosen on it, and all their traits."""

    def __init__(self, variants: Variants) -> None:
        super().__init__(variants)
        traits: set[str] = set()
        for variant in variants.values():
            traits.update(variant.traits)
        self.traits: Container[str] = frozenset(traits)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A combination that cannot run: its name, one sentence why, and when it applies."""

    name: str
    reason: str
    applies: Callable[[Choices, ChosenVariants], bool]


def broken_rule(choices: Choices, variants: Variants) -> Rule | None:
    """The first rule that forbids the combination, or None.

    It depends on the techniques and the accumulation, never on the micro-batch.
    """
    chosen = ChosenVariants(variants)
    # The rules are tried in the order of the table. The record names the first that applies.
    for rule in RULES:
        if rule.applies(choices, chosen):
            return rule
    return None


def own_code_rule(own: UserCode | None, variants: Variants) -> Rule | None:
    """The rule that the user's own code breaks with these choices, or None."""
    if own is None or not _has(ChosenVariants(variants), "accelerate"):
        return None
    return _OWN_CODE


def _has(variants: ChosenVariants, trait: str) -> bool:
    """Whether a chosen variant has the trait."""
    return trait in variants.traits


def _all_of(*traits: str) -> Callable[[Choices, ChosenVariants], bool]:
    """A condition: the chosen variants have all these traits together."""

    def applies(choices: Choices, variants: ChosenVariants) -> bool:
        """Whether all the traits are there."""
        return all(_has(variants, trait) for trait in traits)

    return applies


def _accumulates_with(trait: str) -> Callable[[Choices, ChosenVariants], bool]:
    """A condition: gradients are accumulated, and a chosen variant has the trait."""

    def applies(choices: Choices, variants: ChosenVariants) -> bool:
        """Whether there is more than one backward pass a step, and the trait."""
        return choices.get("accumulation") != 1 and _has(variants, trait)

    return applies


def _accumulation_is_no_integer(choices: Choices, variants: ChosenVariants) -> bool:
    return not isinstance(choices.get("accumulation"), int)


def _offloads_another_optimizer(choices: Choices, variants: ChosenVariants) -> bool:
    optimizer = variants.get("optimizer")
    # DeepSpeed replaces torch's AdamW by its own, which computes the same.
    if optimizer is None or "torch_adamw" in optimizer.traits:
        return False
    return _has(variants, "offloaded_optimizer")


def _is_lomo_with_loss_scaling(choices: Choices, variants: ChosenVariants) -> bool:
    precision = variants.get("precision")
    # Of the number formats, only fp16 needs its loss scaled.
    scales = precision is not None and "fp16" in precision.training_arguments
    return scales and _has(variants, "lomo")


def _freezes_without_an_adapter(choices: Choices, variants: ChosenVariants) -> bool:
    return _has(variants, "frozen_base") and not _has(variants, "peft")


def _sets_the_weights_twice(choices: Choices, variants: ChosenVariants) -> bool:
    precision = variants.get("precision")
    # Of the number formats, only pure bf16 and pure fp16 set the dtype of the weights.
    sets_weights = precision is not None and "dtype" in precision.model_kwargs
    return sets_weights and _has(variants, "frozen_base")


def _is_half_precision_kernel_in_32_bits(choices: Choices, variants: ChosenVariants) -> bool:
    precision = variants.get("precision")
    if precision is None or {"bf16", "fp16"} & precision.training_arguments.keys():
        return False
    # Without autocast, the activations have the format of the weights.
    if precision.model_kwargs.get("dtype") in ("bfloat16", "float16"):
        return False
    return _has(variants, "half_precision_only")


def _budgets_uncompiled_code(choices: Choices, variants: ChosenVariants) -> bool:
    return _has(variants, "activation_budget") and not _has(variants, "partitioned")


def _fuses_the_loss_of_partitioned_weights(choices: Choices, variants: ChosenVariants) -> bool:
    offload = variants.get("offload")
    if not _has(variants, "fused_loss") or offload is None or offload.deepspeed is None:
        return False
    stage = offload.deepspeed.get("zero_optimization", {}).get("stage")
    return bool(stage == 3)


def _replaces_trls_loss(choices: Choices, variants: ChosenVariants) -> bool:
    replaces = _has(variants, "fused_loss") or _has(variants, "weighted_loss")
    return replaces and _has(variants, "trl")


def _leaves_the_mask_out_of_trls_batches(choices: Choices, variants: ChosenVariants) -> bool:
    attention = variants.get("attention")
    batching = variants.get("batching")
    # Rows in one sequence have no mask that could be left out.
    if batching is not None and "batching" in batching.hooks:
        return False
    leaves_out = attention is not None and "collator" in attention.hooks
    return leaves_out and _has(variants, "trl")


_OWN_CODE = Rule(
    name="own_code_needs_trainer",
    reason="The plain Accelerate loop uses no Trainer, so your own Trainer and callbacks cannot "
    "run.",
    applies=_all_of("accelerate"),
)
RULES: tuple[Rule, ...] = (
    Rule(
        name="whole_accumulation",
        reason="The effective batch is not a multiple of the micro-batch, so no whole accumulation "
        "gives it.",
        applies=_accumulation_is_no_integer,
    ),
    Rule(
        name="offloaded_optimizer_is_cpu_adam",
        reason="An offloaded optimizer is DeepSpeed's own CPU AdamW, which would silently replace "
        "this one.",
        applies=_offloads_another_optimizer,
    ),
    Rule(
        # GaLore and APOLLO project matrices. DeepSpeed's ZeRO optimizers own one flat vector per
        # parameter group.
        name="low_rank_needs_matrices",
        reason="ZeRO hands the optimizer flat partitions, and a low-rank optimizer projects whole "
        "weight matrices.",
        applies=_all_of("low_rank", "zero"),
    ),
    Rule(
        # DeepSpeed has a Muon of its own, which it recognises by the name in its configuration.
        name="muon_without_deepspeed",
        reason="DeepSpeed hands the optimizer copies of the weights, most of them flat, and Muon "
        "updates whole weight matrices.",
        applies=_all_of("whole_matrices", "deepspeed"),
    ),
    Rule(
        # transformers.trainer_optimizer._setup_low_rank_optimizer raises this.
        name="layerwise_without_accumulation",
        reason="A layer-wise optimizer updates each layer during the backward pass, so gradients "
        "cannot accumulate.",
        applies=_accumulates_with("layerwise"),
    ),
    Rule(
        name="lomo_without_accumulation",
        reason="LOMO updates the weights during the backward pass, so gradients cannot accumulate.",
        applies=_accumulates_with("lomo"),
    ),
    Rule(
        # accelerate.Accelerator.backward takes the DeepSpeed branch before LOMO's.
        name="lomo_without_deepspeed",
        reason="Under DeepSpeed, Accelerate never calls the fused backward pass in which LOMO "
        "updates the weights.",
        applies=_all_of("lomo", "deepspeed"),
    ),
    Rule(
        # accelerate.Accelerator.backward takes the loss scaler's branch before LOMO's.
        name="lomo_without_loss_scaling",
        reason="With fp16's loss scaling, Accelerate never calls the fused backward pass in which "
        "LOMO updates the weights.",
        applies=_is_lomo_with_loss_scaling,
    ),
    Rule(
        name="lomo_needs_trainer",
        reason="LOMO needs the learning rate in its backward pass, which the Trainer gives and a "
        "plain loop does not.",
        applies=_all_of("lomo", "accelerate"),
    ),
    Rule(
        name="schedule_free_needs_trainer",
        reason="A schedule-free optimizer must be switched to its training mode, which a plain "
        "loop does not do.",
        applies=_all_of("schedule_free", "accelerate"),
    ),
    Rule(
        name="plain_loop_without_deepspeed",
        reason="The plain Accelerate loop runs PyTorch's own engine; DeepSpeed is driven by the "
        "Trainer.",
        applies=_all_of("deepspeed", "accelerate"),
    ),
    Rule(
        # The Trainer turns the model's key-value cache off, and a plain loop keeps it. With a
        # cache, transformers' masking_utils does not look for packed rows.
        name="batching_needs_trainer",
        reason="Only the Trainer makes batches of this kind: its sampler groups rows by length, "
        "and it turns the model's cache off, so that attention stays within a row.",
        applies=_all_of("trainer_batches", "accelerate"),
    ),
    Rule(
        name="flash_kernel_takes_no_mask",
        reason="Rows in one sequence need a mask here, and PyTorch's FlashAttention-2 kernel takes "
        "none: use another kernel, or flash_attention_2.",
        applies=_all_of("packed_rows", "maskless_kernel"),
    ),
    Rule(
        name="plain_loop_is_eager",
        reason="The plain Accelerate loop runs eagerly; torch_compile is an argument of the "
        "Trainer.",
        applies=_all_of("compiled", "accelerate"),
    ),
    Rule(
        # Only min_cut_rematerialization_partition (torch._functorch.partitioners) reads it.
        name="activation_budget_needs_compilation",
        reason="An activation memory budget is for code that AOTAutograd partitions, and this "
        "configuration has none.",
        applies=_budgets_uncompiled_code,
    ),
    Rule(
        # Selective checkpointing works by dispatch modes, which do not see inside compiled code.
        name="selective_checkpointing_of_whole_graphs",
        reason="Selective checkpointing chooses among the operators of a block, and a compiled "
        "block shows none.",
        applies=_all_of("selective", "regional"),
    ),
    Rule(
        # Seen with torch 2.11 and TRL 1.16: a tensor came back without the padding of its rows.
        name="offloaded_activations_of_compiled_code",
        reason="TRL's copies lose the padding that compiled code gives to its activations, and the "
        "backward pass then fails.",
        applies=_all_of("offloaded_activations", "partitioned"),
    ),
    Rule(
        name="regions_without_deepspeed",
        reason="DeepSpeed's engine puts hooks around each block, which compiled blocks would not "
        "run.",
        applies=_all_of("deepspeed", "regional"),
    ),
    Rule(
        # ZeRO-3 gathers a layer's weight only while that layer itself runs.
        name="fused_loss_needs_whole_weights",
        reason="A fused loss multiplies by the weight of the output layer, which ZeRO-3 keeps "
        "partitioned at that time.",
        applies=_fuses_the_loss_of_partitioned_weights,
    ),
    Rule(
        # trl.trainer.utils.add_fused_lm_head multiplies the hidden states by the output layer.
        name="trl_computes_the_loss",
        reason="TRL's Trainers compute the loss themselves, in chunks, and never call the model's "
        "own: another loss would have no effect.",
        applies=_replaces_trls_loss,
    ),
    Rule(
        # trl.SFTTrainer.compute_loss counts the tokens of a batch by its mask.
        name="trl_needs_the_mask",
        reason="TRL's Trainers make the batches themselves and need their mask, which this "
        "attention leaves out.",
        applies=_leaves_the_mask_out_of_trls_batches,
    ),
    *(
        Rule(name=name, reason=reason, applies=_all_of(*traits))
        for name, (traits, reason) in INCOMPATIBLE.items()
    ),
    Rule(
        name="base_needs_adapter",
        reason="The base axis is about frozen weights, and without an adapter every weight is "
        "trained; precision: bf16_weights trains all weights in 16 bits.",
        applies=_freezes_without_an_adapter,
    ),
    Rule(
        name="adapter_freezes_the_vision_tower",
        reason="An adapter freezes all weights of the model, those of the vision tower included; "
        "leave out vision: frozen.",
        applies=_all_of("frozen_vision", "peft"),
    ),
    Rule(
        name="adapter_freezes_the_models_own_weights",
        reason="An adapter freezes the model's own weights; its parameter modules_to_save names "
        "those that are trained in full.",
        applies=_all_of("own_weights", "peft"),
    ),
    Rule(
        name="qat_trains_the_models_own_weights",
        reason="An adapter freezes the weights that are to be quantized, so they cannot learn for "
        "it.",
        applies=_all_of("fake_quantized", "peft"),
    ),
    Rule(
        # Both replace the same linear layers.
        name="qat_without_fp8_products",
        reason="Linear layers that multiply in FP8 and those that round for a quantization to come "
        "replace each other; use another precision.",
        applies=_all_of("fake_quantized", "float8_linears"),
    ),
    Rule(
        name="base_sets_the_weights",
        reason="This precision and the base axis both set the format of the weights; "
        "precision: bf16 goes with a base.",
        applies=_sets_the_weights_twice,
    ),
    Rule(
        name="quantized_base_without_zero3",
        reason="ZeRO-3 partitions each weight as it is made, before it can be quantized.",
        applies=_all_of("quantized_base", "zero3"),
    ),
    Rule(
        # peft.PeftModel refuses it: checkpointed layers drop the cache that holds the prefix.
        name="key_value_prefix_without_checkpointing",
        reason="Prefix tuning passes its keys and values as a cache, which checkpointed layers do "
        "not keep.",
        applies=_all_of("key_value_prefix", "checkpointing"),
    ),
    Rule(
        # transformers.integrations.flash_attention casts to the autocast dtype, else to the
        # weights' own.
        name="flash_attention_in_16_bits",
        reason="FlashAttention-2 computes in fp16 or bf16 only, and this precision keeps 32-bit "
        "activations.",
        applies=_is_half_precision_kernel_in_32_bits,
    ),
)
