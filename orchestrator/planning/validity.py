"""Combinations that cannot be, as a table of rules with reasons: such a point becomes a row without being run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jobs.spec import Choice
from jobs.techniques import Variant

Choices = Mapping[str, Choice]
Variants = Mapping[str, Variant]
"""Axis -> the variant chosen on it. An axis that the user's own arguments decide is absent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A combination that cannot be: its name, one sentence why, and when it applies."""

    name: str
    reason: str
    applies: Callable[[Choices, Variants], bool]


def _tagged(*tags: str) -> Callable[[Choices, Variants], bool]:
    """Every one of the tags is on some chosen variant."""

    def applies(choices: Choices, variants: Variants) -> bool:
        return all(any(tag in variant.tags for variant in variants.values()) for tag in tags)

    return applies


def _optimizer_is_not_deepspeeds(choices: Choices, variants: Variants) -> bool:
    optimizer = variants.get("optimizer")
    other = optimizer is not None and "torch_adamw" not in optimizer.tags
    return other and _tagged("offloaded_optimizer")(choices, variants)


def _flash_in_32_bits(choices: Choices, variants: Variants) -> bool:
    precision = variants.get("precision")
    full = precision is not None and not {"bf16", "fp16"} & precision.training_arguments.keys()
    return full and _tagged("half_precision_only")(choices, variants)


def _layerwise_accumulates(choices: Choices, variants: Variants) -> bool:
    return choices.get("accumulation") != 1 and _tagged("layerwise")(choices, variants)


def _lomo_accumulates(choices: Choices, variants: Variants) -> bool:
    return choices.get("accumulation") != 1 and _tagged("lomo")(choices, variants)


def _lomo_scaled(choices: Choices, variants: Variants) -> bool:
    precision = variants.get("precision")
    fp16 = precision is not None and "fp16" in precision.training_arguments
    return fp16 and _tagged("lomo")(choices, variants)


def _accumulation_is_broken(choices: Choices, variants: Variants) -> bool:
    return not isinstance(choices.get("accumulation"), int)


RULES: tuple[Rule, ...] = (
    Rule(
        name="whole_accumulation",
        reason="The effective batch is not a multiple of the micro-batch, so no whole accumulation gives it.",
        applies=_accumulation_is_broken,
    ),
    Rule(
        name="offloaded_optimizer_is_cpu_adam",
        reason="An offloaded optimizer is DeepSpeed's own CPU AdamW, which would silently replace this one.",
        applies=_optimizer_is_not_deepspeeds,
    ),
    Rule(
        # GaLore and APOLLO project matrices; DeepSpeed's ZeRO optimizers own one flat vector per parameter group.
        name="low_rank_needs_matrices",
        reason="ZeRO hands the optimizer flat partitions, and a low-rank optimizer projects whole weight matrices.",
        applies=_tagged("low_rank", "zero"),
    ),
    Rule(
        # transformers.trainer_optimizer._setup_low_rank_optimizer raises this.
        name="layerwise_without_accumulation",
        reason="A layer-wise optimizer updates each layer during the backward pass, so gradients cannot accumulate.",
        applies=_layerwise_accumulates,
    ),
    Rule(
        name="lomo_without_accumulation",
        reason="LOMO updates the weights during the backward pass, so gradients cannot accumulate.",
        applies=_lomo_accumulates,
    ),
    Rule(
        # accelerate.Accelerator.backward: the DeepSpeed and the loss scaler's branches come before LOMO's.
        name="lomo_without_deepspeed",
        reason="Under DeepSpeed, Accelerate never calls the fused backward pass in which LOMO updates the weights.",
        applies=_tagged("lomo", "deepspeed"),
    ),
    Rule(
        name="lomo_without_loss_scaling",
        reason="With fp16's loss scaling, Accelerate never calls the fused backward pass in which LOMO updates.",
        applies=_lomo_scaled,
    ),
    Rule(
        name="lomo_needs_trainer",
        reason="LOMO needs the learning rate in its backward pass, which the Trainer gives and a plain loop does not.",
        applies=_tagged("lomo", "accelerate"),
    ),
    Rule(
        name="schedule_free_needs_trainer",
        reason="A schedule-free optimizer must be switched to its training mode, which a plain loop does not do.",
        applies=_tagged("schedule_free", "accelerate"),
    ),
    Rule(
        name="plain_loop_without_deepspeed",
        reason="The plain Accelerate loop runs PyTorch's own engine; DeepSpeed is driven by the Trainer.",
        applies=_tagged("deepspeed", "accelerate"),
    ),
    Rule(
        name="plain_loop_is_eager",
        reason="The plain Accelerate loop runs eagerly; torch_compile is an argument of the Trainer.",
        applies=_tagged("compiled", "accelerate"),
    ),
    Rule(
        # transformers.integrations.flash_attention casts to the autocast dtype, else to the weights' own.
        name="flash_attention_in_16_bits",
        reason="FlashAttention-2 computes in fp16 or bf16 only, and this precision keeps 32-bit activations.",
        applies=_flash_in_32_bits,
    ),
)


def broken_rule(choices: Choices, variants: Variants) -> Rule | None:
    """The first rule that forbids the combination, or None."""
    return next((rule for rule in RULES if rule.applies(choices, variants)), None)
