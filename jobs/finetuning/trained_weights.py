"""Trainable axis: which of the model's own weights are trained, without an adapter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.spec import Hook, Task
from jobs.techniques.hooks import hook
from jobs.techniques.variant import Axis, Family, Variant, add

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedNames:
    """The parameters to train: those whose name has a match of one of these expressions."""

    patterns: list[str]


def _matching(parameters: Mapping[str, Any]) -> Variant:
    return Variant(
        doc="Only the parameters that regular expressions name",
        hooks={"trained": Hook("trained_weights", dict(parameters))},
        numerical_effect="training",
        traits=("own_weights",),
    )


def _no_expressions(parameters: Mapping[str, Any]) -> str:
    import re

    patterns = parameters.get("patterns", [])
    if not patterns:
        return "patterns has no regular expression, so nothing would be trained"
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            return f'"{pattern}" in patterns is not a regular expression: {error}'
    return ""


TRAINABLE = Axis(
    name="trainable",
    doc="Which of the model's own weights are trained",
    default="default",
    variants={
        "default": Variant(doc="All of them, unless another technique freezes some"),
    },
    families={
        "matching": Family(
            doc="Only parameters whose name has a match of one of the regular expressions in "
            "`patterns`, such as `layers\\.[0-3]\\.`; the others have no gradients and no "
            "optimizer states",
            config_class="jobs.finetuning.trained_weights:TrainedNames",
            build=_matching,
            problem=_no_expressions,
        ),
    },
)
add(TRAINABLE)


@hook("trained_weights")
def trained_weights(
    model: torch.nn.Module,
    task: Task,
    arguments: Any,
    *,
    patterns: list[str] | tuple[str, ...] = (),
) -> torch.nn.Module:
    """``model`` with all parameters frozen whose names have no match of the regular ``patterns``.
    Raises ValueError if a pattern matches no parameter, or is no regular expression."""
    import re

    expressions = list(patterns)
    without_match = set(expressions)
    for name, parameter in model.named_parameters():
        try:
            matches = [text for text in expressions if re.search(text, name)]
        except re.error as error:
            raise ValueError(f"{error.pattern!r} is not a regular expression: {error}") from error
        without_match.difference_update(matches)
        if not matches:
            parameter.requires_grad_(False)
    if without_match or not expressions:
        raise ValueError(
            f"{type(model).__name__} does not support these patterns of trainable: no parameter "
            f"has a match of {sorted(without_match)}"
        )
    for part in model.modules():
        freeze: Any = getattr(part, "_freeze_parameters", None)
        if freeze is not None and not any(own.requires_grad for own in part.parameters()):
            freeze()  # else it keeps what it computes of a sound for gradients that nothing needs
    # transformers 5.23 renamed the argument; this is the new name, then the old one.
    checkpointing = (
        getattr(arguments, "activation_checkpointing_kwargs", None)
        or getattr(arguments, "gradient_checkpointing_kwargs", None)
        or {}
    )
    if checkpointing.get("use_reentrant"):
        # It needs an input that requires gradients, unlike the output of frozen embeddings.
        model.enable_input_require_grads()  # type: ignore[operator]
    return model
