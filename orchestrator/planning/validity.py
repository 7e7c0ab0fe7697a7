"""Combinations that cannot run, as a table of rules with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.techniques import INCOMPATIBLE, Variant
from orchestrator.planning.axes import Choices

Variants = Mapping[str, Variant]
"""Axis -> the variant chosen on it. An axis that the user's own arguments decide is absent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A combination that cannot run: its name, one sentence why, and when it applies."""

    name: str
    reason: str
    traits: tuple[str, ...]
    """It applies if a configuration has all of these traits,"""
    without: str = ""
    """and not this one."""

    def applies(self, traits: frozenset[str]) -> bool:
        """Whether it forbids a configuration with these traits."""
        return traits.issuperset(self.traits) and self.without not in traits


def broken_rule(
    choices: Choices, variants: Variants, *, has_user_code: bool = False
) -> Rule | None:
    """The first rule that forbids the combination, or None.

    It depends on the techniques and the accumulation, never on the micro-batch.
    """
    traits = traits_of(choices, variants)
    if has_user_code:
        traits |= {"user_code"}
    return next((rule for rule in RULES if rule.applies(traits)), None)


def traits_of(choices: Choices, variants: Variants) -> frozenset[str]:
    """The traits of the chosen variants, and those that follow from their settings."""
    traits: set[str] = set()
    for variant in variants.values():
        traits.update(variant.traits)
        if "loss" in variant.hooks:
            traits.add("replaced_loss")
    if "optimizer" in variants:
        traits.add("named_optimizer")
    if "attention" in variants and "collator" in variants["attention"].hooks:
        traits.add("unmasked")
    if "precision" in variants:
        traits |= _traits_of_precision(variants["precision"])
    accumulation = choices.get("accumulation")
    if accumulation != 1:
        traits.add("accumulates" if isinstance(accumulation, int) else "partial_accumulation")
    return frozenset(traits)


def _traits_of_precision(precision: Variant) -> set[str]:
    traits = set()
    if "fp16" in precision.training_arguments:
        traits.add("loss_scaling")
    if "dtype" in precision.model_kwargs:
        traits.add("weights_format")
    # Without autocast, the activations have the format of the weights.
    elif not {"bf16", "fp16"} & precision.training_arguments.keys():
        traits.add("32_bit_activations")
    return traits


RULES: tuple[Rule, ...] = (
    Rule(
        name="whole_accumulation",
        reason="The effective batch is not a multiple of the micro-batch, so no whole accumulation "
        "gives it.",
        traits=("partial_accumulation",),
    ),
    Rule(
        name="offloaded_optimizer_is_cpu_adam",
        reason="An offloaded optimizer is DeepSpeed's own CPU AdamW, which would silently replace "
        "this one.",
        traits=("offloaded_optimizer", "named_optimizer"),
        without="torch_adamw",
    ),
    Rule(
        # GaLore and APOLLO project matrices. DeepSpeed's ZeRO optimizers own one flat vector per
        # parameter group.
        name="low_rank_needs_matrices",
        reason="ZeRO hands the optimizer flat partitions, and a low-rank optimizer projects whole "
        "weight matrices.",
        traits=("low_rank", "zero"),
    ),
    Rule(
        # DeepSpeed has a Muon of its own, which it recognises by the name in its configuration.
        name="muon_without_deepspeed",
        reason="DeepSpeed hands the optimizer copies of the weights, most of them flat, and Muon "
        "updates whole weight matrices.",
        traits=("whole_matrices", "deepspeed"),
    ),
    Rule(
        # transformers.trainer_optimizer._setup_low_rank_optimizer raises this.
        name="layerwise_without_accumulation",
        reason="A layer-wise optimizer updates each layer during the backward pass, so gradients "
        "cannot accumulate.",
        traits=("layerwise", "accumulates"),
    ),
    Rule(
        name="lomo_without_accumulation",
        reason="LOMO updates the weights during the backward pass, so gradients cannot accumulate.",
        traits=("lomo", "accumulates"),
    ),
    Rule(
        # accelerate.Accelerator.backward takes the DeepSpeed branch before LOMO's.
        name="lomo_without_deepspeed",
        reason="Under DeepSpeed, Accelerate never calls the fused backward pass in which LOMO "
        "updates the weights.",
        traits=("lomo", "deepspeed"),
    ),
    Rule(
        # accelerate.Accelerator.backward takes the loss scaler's branch before LOMO's.
        name="lomo_without_loss_scaling",
        reason="With fp16's loss scaling, Accelerate never calls the fused backward pass in which "
        "LOMO updates the weights.",
        traits=("lomo", "loss_scaling"),
    ),
    Rule(
        name="lomo_needs_trainer",
        reason="LOMO needs the learning rate in its backward pass, which the Trainer gives and a "
        "plain loop does not.",
        traits=("lomo", "accelerate"),
    ),
    Rule(
        name="schedule_free_needs_trainer",
        reason="A schedule-free optimizer must be switched to its training mode, which a plain "
        "loop does not do.",
        traits=("schedule_free", "accelerate"),
    ),
    Rule(
        name="plain_loop_without_deepspeed",
        reason="The plain Accelerate loop runs PyTorch's own engine; DeepSpeed is driven by the "
        "Trainer.",
        traits=("deepspeed", "accelerate"),
    ),
    Rule(
        # The Trainer turns the model's key-value cache off, and a plain loop keeps it. With a
        # cache, transformers' masking_utils does not look for packed rows.
        name="batching_needs_trainer",
        reason="Only the Trainer makes batches of this kind: its sampler groups rows by length, "
        "and it turns the model's cache off, so that attention stays within a row.",
        traits=("trainer_batches", "accelerate"),
    ),
    Rule(
        name="flash_kernel_takes_no_mask",
        reason="Rows in one sequence need a mask here, and PyTorch's FlashAttention-2 kernel takes "
        "none: use another kernel, or flash_attention_2.",
        traits=("packed_rows", "maskless_kernel"),
    ),
    Rule(
        name="plain_loop_is_eager",
        reason="The plain Accelerate loop runs eagerly; torch_compile is an argument of the "
        "Trainer.",
        traits=("compiled", "accelerate"),
    ),
    Rule(
        # Only min_cut_rematerialization_partition (torch._functorch.partitioners) reads it.
        name="activation_budget_needs_compilation",
        reason="An activation memory budget is for code that AOTAutograd partitions, and this "
        "configuration has none.",
        traits=("activation_budget",),
        without="partitioned",
    ),
    Rule(
        # Selective checkpointing works by dispatch modes, which do not see inside compiled code.
        name="selective_checkpointing_of_whole_graphs",
        reason="Selective checkpointing chooses among the operators of a block, and a compiled "
        "block shows none.",
        traits=("selective", "regional"),
    ),
    Rule(
        # Seen with torch 2.11 and TRL 1.16: a tensor came back without the padding of its rows.
        name="offloaded_activations_of_compiled_code",
        reason="TRL's copies lose the padding that compiled code gives to its activations, and the "
        "backward pass then fails.",
        traits=("offloaded_activations", "partitioned"),
    ),
    Rule(
        name="regions_without_deepspeed",
        reason="DeepSpeed's engine puts hooks around each block, which compiled blocks would not "
        "run.",
        traits=("deepspeed", "regional"),
    ),
    Rule(
        # ZeRO-3 gathers a layer's weight only while that layer itself runs.
        name="fused_loss_needs_whole_weights",
        reason="A fused loss multiplies by the weight of the output layer, which ZeRO-3 keeps "
        "partitioned at that time.",
        traits=("fused_loss", "zero3"),
    ),
    Rule(
        # trl.trainer.utils.add_fused_lm_head multiplies the hidden states by the output layer.
        name="trl_computes_the_loss",
        reason="TRL's Trainers compute the loss themselves, in chunks, and never call the model's "
        "own: another loss would have no effect.",
        traits=("replaced_loss", "trl"),
    ),
    Rule(
        # trl.SFTTrainer.compute_loss counts the tokens of a batch by its mask.
        name="trl_needs_the_mask",
        reason="TRL's Trainers make the batches themselves and need their mask, which this "
        "attention leaves out.",
        traits=("unmasked", "trl"),
        without="packed_rows",
    ),
    *(
        Rule(name=name, reason=reason, traits=traits)
        for name, (traits, reason) in INCOMPATIBLE.items()
    ),
    Rule(
        name="base_needs_adapter",
        reason="The base axis is about frozen weights, and without an adapter every weight is "
        "trained; precision: bf16_weights trains all weights in 16 bits.",
        traits=("frozen_base",),
        without="peft",
    ),
    Rule(
        name="adapter_freezes_the_vision_tower",
        reason="An adapter freezes all weights of the model, those of the vision tower included; "
        "leave out vision: frozen.",
        traits=("frozen_vision", "peft"),
    ),
    Rule(
        name="adapter_freezes_the_models_own_weights",
        reason="An adapter freezes the model's own weights; its parameter modules_to_save names "
        "those that are trained in full.",
        traits=("own_weights", "peft"),
    ),
    Rule(
        name="qat_trains_the_models_own_weights",
        reason="An adapter freezes the weights that are to be quantized, so they cannot learn for "
        "it.",
        traits=("fake_quantized", "peft"),
    ),
    Rule(
        # Both replace the same linear layers.
        name="qat_without_fp8_products",
        reason="Linear layers that multiply in FP8 and those that round for a quantization to come "
        "replace each other; use another precision.",
        traits=("fake_quantized", "float8_linears"),
    ),
    Rule(
        name="base_sets_the_weights",
        reason="This precision and the base axis both set the format of the weights; "
        "precision: bf16 goes with a base.",
        traits=("frozen_base", "weights_format"),
    ),
    Rule(
        name="quantized_base_without_zero3",
        reason="ZeRO-3 partitions each weight as it is made, before it can be quantized.",
        traits=("quantized_base", "zero3"),
    ),
    Rule(
        # peft.PeftModel refuses it: checkpointed layers drop the cache that holds the prefix.
        name="key_value_prefix_without_checkpointing",
        reason="Prefix tuning passes its keys and values as a cache, which checkpointed layers do "
        "not keep.",
        traits=("key_value_prefix", "checkpointing"),
    ),
    Rule(
        # transformers.integrations.flash_attention casts to the autocast dtype, else to the
        # weights' own.
        name="flash_attention_in_16_bits",
        reason="FlashAttention-2 computes in fp16 or bf16 only, and this precision keeps 32-bit "
        "activations.",
        traits=("half_precision_only", "32_bit_activations"),
    ),
    Rule(
        name="own_code_needs_trainer",
        reason="The plain Accelerate loop uses no Trainer, so your own Trainer and callbacks "
        "cannot run.",
        traits=("user_code", "accelerate"),
    ),
)
