"""Finds unmet requirements of techniques, as far as the configuration shows them.

``jobs.trial.requirements`` checks all of them on the node. What can be checked without a node is
checked here, so that the plan rules such a trial out at once.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from jobs.spec import TrialSpec
from jobs.techniques import Variant
from jobs.trial.requirements import lacks_package, unmet_reason
from orchestrator.planning.library_facts import facts
from orchestrator.planning.prechecks.model_configuration import ModelConfiguration
from orchestrator.units import count

_ALL_WEIGHTS = "weights_that_train"
"""What a trial without an adapter needs."""

_ATTENTION_DROPOUTS = "attention_probs_dropout_prob attention_dropout attn_pdrop attn_dropout"
"""What architectures call the dropout of attention in their configuration."""
_DROPOUTS = f"""
{_ATTENTION_DROPOUTS} activation_dropout drop_path_rate dropout dropout_rate embd_pdrop
hidden_dropout hidden_dropout_prob resid_pdrop residual_dropout
"""
"""What they call the dropouts of their layers, attention included."""


def unmet_requirement(spec: TrialSpec, variants: Iterable[Variant]) -> tuple[str, str] | None:
    """The first requirement that the configuration shows to be unmet, and why. ``variants`` are the
    rows of the trial's techniques. None if every requirement is met, or if only a node can tell."""
    traits: set[str] = set().union(*(variant.traits for variant in variants))
    if "peft" not in traits:
        traits.add(_ALL_WEIGHTS)
    for requirement in (*spec.settings.requires, *sorted(traits)):
        for answer in _answers(requirement):
            if reason := answer(requirement, spec):
                return requirement, reason
    return None


@functools.cache
def _answers(requirement: str) -> list[Callable[[str, TrialSpec], str]]:
    return [answer for prefix, answer in _ANSWERS.items() if requirement.startswith(prefix)]


def missing_packages(trials: Sequence[TrialSpec]) -> Iterator[str]:
    """A sentence for each package that trials need and this machine lacks."""
    needed = Counter(own for spec in trials for own in spec.settings.requires)
    for requirement, number in needed.items():
        if lacks_package(requirement):
            reason = unmet_reason(requirement, trials[0])
            yield f"{number} of {count(len(trials), 'trial')} cannot run here: {reason}"


def _virtual_tokens(requirement: str, spec: TrialSpec) -> str:
    added = requirement.partition(":")[2]
    if not added:
        return unmet_reason(requirement, spec)
    positions = ModelConfiguration.of(spec.model).usable_positions()
    file = spec.data.file
    # Token ids stay as they are, so that only the node knows how many there are.
    has_no_limit = file is not None and file.tokenizer is None and file.max_tokens is None
    if positions is None or has_no_limit or spec.data.tokens + int(added) <= positions:
        return ""
    return (
        f"{added} virtual tokens and {spec.data.tokens} tokens are more than the model's "
        f"{positions} positions"
    )


def _attention_dropout(requirement: str, spec: TrialSpec) -> str:
    found = _dropout_of(spec, _ATTENTION_DROPOUTS)
    if not found:
        return ""
    return (
        f"this attention has no dropout, and the model asks for {found}; set it to 0.0 in "
        "model.config"
    )


def _recomputed_dropout(requirement: str, spec: TrialSpec) -> str:
    found = _dropout_of(spec, _DROPOUTS) or _adapter_dropout(spec)
    if not found:
        return ""
    # Seen with torch 2.13 by finite differences, and with torch 2.11 by the losses on an H200.
    return (
        "with a memory budget, PyTorch draws the dropout again in the backward pass, so the "
        f"gradients are wrong, and the model asks for {found}; set it to 0.0"
    )


def _adapter_dropout(spec: TrialSpec) -> str:
    parameters = (hook.arguments.get("parameters") or {} for hook in spec.settings.hooks.values())
    rates = (of_hook.get("lora_dropout") for of_hook in parameters)
    return next((f"lora_dropout={rate}" for rate in rates if rate), "")


def _dropout_of(spec: TrialSpec, names: str) -> str:
    """The first dropout of the model that is not zero, as ``name=rate``; empty if there is none."""
    configuration = ModelConfiguration.of(spec.model)
    if configuration.known is None:
        return ""
    rates = ((name, configuration.value(name)) for name in names.split())
    asked = (f"{name}={rate}" for name, rate in rates if isinstance(rate, (int, float)) and rate)
    return next(asked, "")


def _liger_architecture(requirement: str, spec: TrialSpec) -> str:
    model_type = ModelConfiguration.of(spec.model).model_type
    known = facts().get("liger_model_types")
    if not model_type or known is None or model_type in known:
        return ""
    return f"Liger has no kernels for the architecture {model_type}"


def _trainable_weights(requirement: str, spec: TrialSpec) -> str:
    if not ModelConfiguration.of(spec.model).given.get("quantization_config"):
        return ""
    return (
        "the weights of this checkpoint are quantized, and quantized weights do not train; choose "
        "a technique of the axis adapter"
    )


def _unless(fact: str, sentence: str) -> Callable[[str, TrialSpec], str]:
    """An answer by what the source of the model in transformers says, if that is known."""

    def answer(requirement: str, spec: TrialSpec) -> str:
        configuration = ModelConfiguration.of(spec.model)
        # A checkpoint with code of its own is not in transformers' folders.
        if configuration.known is None or configuration.given.get("auto_map"):
            return ""
        is_met = configuration.known.source.get(fact, True)
        return "" if is_met else f"{configuration.model_type} {sentence}"

    return answer


_ANSWERS: Mapping[str, Callable[[str, TrialSpec], str]] = {
    "task:": unmet_reason,
    "text_task": unmet_reason,
    "tokens": unmet_reason,
    "several_gpus": unmet_reason,
    "virtual_tokens:": _virtual_tokens,
    "no_attention_dropout": _attention_dropout,
    "activation_budget": _recomputed_dropout,
    "checkpointing": _unless("can_checkpoint", "does not support activation checkpointing"),
    "experts": _unless(
        "has_experts", "has no experts whose implementation transformers can choose"
    ),
    "liger_architecture": _liger_architecture,
    _ALL_WEIGHTS: _trainable_weights,
}
"""Beginning of a requirement, or a trait -> function that says why it is not met; empty if it is.
The function gets the requirement and the trial."""
