"""Combinations that cannot run, as a table of rules with reasons."""

from collections.abc import Iterator, Mapping

from jobs.techniques import INCOMPATIBLE, Variant
from orchestrator.planning.choices.axes import Choices

Variants = Mapping[str, Variant]
"""Axis -> the variant chosen on it. An axis that the user's own arguments decide is absent."""


def broken_rules(traits: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Name and reason of each rule that forbids configurations with these traits."""
    lacked = {trait for trait in _LACKED if trait.removeprefix("not ") not in traits}
    for name, (forbidden, reason) in RULES.items():
        if (traits | lacked).issuperset(forbidden):
            yield name, reason


def traits_of(
    choices: Choices, variants: Variants, *, has_user_code: bool = False
) -> frozenset[str]:
    """The traits of the chosen variants, and those that follow from their settings. They depend on
    the techniques and the accumulation, never on the micro-batch."""
    traits: set[str] = set().union(*(variant.traits for variant in variants.values()))
    if has_user_code:
        traits.add("user_code")
    if any("loss" in variant.hooks for variant in variants.values()):
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


RULES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "whole_accumulation": (
        ("partial_accumulation",),
        "The effective batch is not a multiple of the micro-batch, so no whole accumulation gives"
        " it.",
    ),
    "offloaded_optimizer_is_cpu_adam": (
        ("offloaded_optimizer", "named_optimizer", "not torch_adamw"),
        "An offloaded optimizer is DeepSpeed's own CPU AdamW, which would silently replace this "
        "one.",
    ),
    "low_rank_needs_matrices": (
        # GaLore and APOLLO project matrices. DeepSpeed's ZeRO optimizers own one flat vector per
        # parameter group.
        ("low_rank", "zero"),
        "ZeRO hands the optimizer flat partitions, and a low-rank optimizer projects whole weight"
        " matrices.",
    ),
    "muon_without_deepspeed": (
        # DeepSpeed has a Muon of its own, which it recognises by the name in its configuration.
        ("whole_matrices", "deepspeed"),
        "DeepSpeed hands the optimizer copies of the weights, most of them flat, and Muon updates"
        " whole weight matrices.",
    ),
    "layerwise_without_accumulation": (
        # transformers.trainer_optimizer._setup_low_rank_optimizer raises this.
        ("layerwise", "accumulates"),
        "A layer-wise optimizer updates each layer during the backward pass, so gradients cannot "
        "accumulate.",
    ),
    "lomo_without_accumulation": (
        ("lomo", "accumulates"),
        "LOMO updates the weights during the backward pass, so gradients cannot accumulate.",
    ),
    "lomo_without_deepspeed": (
        # accelerate.Accelerator.backward takes the DeepSpeed branch before LOMO's.
        ("lomo", "deepspeed"),
        "Under DeepSpeed, Accelerate never calls the fused backward pass in which LOMO updates "
        "the weights.",
    ),
    "lomo_without_loss_scaling": (
        # accelerate.Accelerator.backward takes the loss scaler's branch before LOMO's.
        ("lomo", "loss_scaling"),
        "With fp16's loss scaling, Accelerate never calls the fused backward pass in which LOMO "
        "updates the weights.",
    ),
    "lomo_needs_trainer": (
        ("lomo", "accelerate"),
        "LOMO needs the learning rate in its backward pass, which the Trainer gives and a plain "
        "loop does not.",
    ),
    "schedule_free_needs_trainer": (
        ("schedule_free", "accelerate"),
        "A schedule-free optimizer must be switched to its training mode, which a plain loop does"
        " not do.",
    ),
    "offload_on_one_gpu": (
        ("several_gpus", "one_gpu_engine"),
        "The axis offload and your own DeepSpeed file are for one GPU here; sharding: zero1 to "
        "zero3 has DeepSpeed share the states of several.",
    ),
    "optimizer_of_dtensors": (
        # tests/contracts/test_sharded_optimizers.py runs such updates.
        ("dtensors", "plain_tensors"),
        "FSDP2 makes a DTensor of every parameter, and the operators of this optimizer take none; "
        "with sharding: ddp it updates plain tensors.",
    ),
    "plain_loop_without_several_gpus": (
        ("several_gpus", "accelerate"),
        "The plain Accelerate loop trains on one GPU here; sharding is set up by the Trainer.",
    ),
    "plain_loop_without_deepspeed": (
        ("deepspeed", "accelerate"),
        "The plain Accelerate loop runs PyTorch's own engine; DeepSpeed is driven by the Trainer.",
    ),
    "batching_needs_trainer": (
        # The Trainer turns the model's key-value cache off, and a plain loop keeps it. With a
        # cache, transformers' masking_utils does not look for packed rows.
        ("trainer_batches", "accelerate"),
        "Only the Trainer makes batches of this kind: its sampler groups rows by length, and it "
        "turns the model's cache off, so that attention stays within a row.",
    ),
    "flash_kernel_takes_no_mask": (
        ("packed_rows", "maskless_kernel"),
        "Rows in one sequence need a mask here, and PyTorch's FlashAttention-2 kernel takes none:"
        " use another kernel, or flash_attention_2.",
    ),
    "plain_loop_is_eager": (
        ("compiled", "accelerate"),
        "The plain Accelerate loop runs eagerly; torch_compile is an argument of the Trainer.",
    ),
    "activation_budget_needs_compilation": (
        # Only min_cut_rematerialization_partition (torch._functorch.partitioners) reads it.
        ("activation_budget", "not partitioned"),
        "An activation memory budget is for code that AOTAutograd partitions, and this "
        "configuration has none.",
    ),
    "selective_checkpointing_of_whole_graphs": (
        # Selective checkpointing works by dispatch modes, which do not see inside compiled code.
        ("selective", "regional"),
        "Selective checkpointing chooses among the operators of a block, and a compiled block "
        "shows none.",
    ),
    "offloaded_activations_of_compiled_code": (
        # Seen with torch 2.11 and TRL 1.16: a tensor came back without the padding of its rows.
        ("offloaded_activations", "partitioned"),
        "TRL's copies lose the padding that compiled code gives to its activations, and the "
        "backward pass then fails.",
    ),
    "regions_without_deepspeed": (
        ("deepspeed", "regional"),
        "DeepSpeed's engine puts hooks around each block, which compiled blocks would not run.",
    ),
    "fused_loss_needs_whole_weights": (
        # ZeRO-3 gathers a layer's weight only while that layer itself runs.
        ("fused_loss", "zero3"),
        "A fused loss multiplies by the weight of the output layer, which ZeRO-3 keeps "
        "partitioned at that time.",
    ),
    "trl_computes_the_loss": (
        # trl.trainer.utils.add_fused_lm_head multiplies the hidden states by the output layer.
        ("replaced_loss", "trl"),
        "TRL's Trainers compute the loss themselves, in chunks, and never call the model's own: "
        "another loss would have no effect.",
    ),
    "trl_needs_the_mask": (
        # trl.SFTTrainer.compute_loss counts the tokens of a batch by its mask.
        ("unmasked", "trl", "not packed_rows"),
        "TRL's Trainers make the batches themselves and need their mask, which this attention "
        "leaves out.",
    ),
    **INCOMPATIBLE,
    "base_needs_adapter": (
        ("frozen_base", "not peft"),
        "The base axis is about frozen weights, and without an adapter every weight is trained; "
        "precision: bf16_weights trains all weights in 16 bits.",
    ),
    "adapter_freezes_the_vision_tower": (
        ("frozen_vision", "peft"),
        "An adapter freezes all weights of the model, those of the vision tower included; leave "
        "out vision: frozen.",
    ),
    "adapter_freezes_the_models_own_weights": (
        ("own_weights", "peft"),
        "An adapter freezes the model's own weights; its parameter modules_to_save names those "
        "that are trained in full.",
    ),
    "qat_trains_the_models_own_weights": (
        ("fake_quantized", "peft"),
        "An adapter freezes the weights that are to be quantized, so they cannot learn for it.",
    ),
    "qat_without_fp8_products": (
        # Both replace the same linear layers.
        ("fake_quantized", "float8_linears"),
        "Linear layers that multiply in FP8 and those that round for a quantization to come "
        "replace each other; use another precision.",
    ),
    "base_sets_the_weights": (
        ("frozen_base", "weights_format"),
        "This precision and the base axis both set the format of the weights; precision: bf16 "
        "goes with a base.",
    ),
    "quantized_base_without_zero3": (
        ("quantized_base", "zero3"),
        "ZeRO-3 partitions each weight as it is made, before it can be quantized.",
    ),
    "key_value_prefix_without_checkpointing": (
        # peft.PeftModel refuses it: checkpointed layers drop the cache that holds the prefix.
        ("key_value_prefix", "checkpointing"),
        "Prefix tuning passes its keys and values as a cache, which checkpointed layers do not "
        "keep.",
    ),
    "flash_attention_in_16_bits": (
        # transformers.integrations.flash_attention casts to the autocast dtype, else to the
        # weights' own.
        ("half_precision_only", "32_bit_activations"),
        "FlashAttention-2 computes in fp16 or bf16 only, and this precision keeps 32-bit "
        "activations.",
    ),
    "own_code_needs_trainer": (
        ("user_code", "accelerate"),
        "The plain Accelerate loop uses no Trainer, so your own Trainer and callbacks cannot run.",
    ),
}
"""Name of a rule -> the traits that do not go together ("not peft": without the trait), and why."""
_LACKED = {trait for traits, _ in RULES.values() for trait in traits if trait.startswith("not ")}
