"""Adapter axis: parameter-efficient fine-tuning through PEFT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.spec import Hook
from jobs.techniques.base import Axis, Variant
from jobs.techniques.hooks import hook

if TYPE_CHECKING:
    import torch

    from jobs.spec import Task


def _lora(doc: str, **arguments: Any) -> Variant:
    return Variant(
        doc=doc,
        hooks={"model": Hook("lora", arguments)},
        requires=("package:peft",),
        numerical_effect="training",
    )


ADAPTER = Axis(
    name="adapter",
    doc="Which parameters are trained: all of them, or those of an adapter",
    default="none",
    variants={
        "none": Variant(doc="Full fine-tuning: every parameter is trained"),
        "lora_r8": _lora(
            "LoRA of rank 8 on PEFT's default modules (query and value): saves nearly all "
            "gradients and optimizer states",
            rank=8,
        ),
        "lora_r64": _lora(
            "LoRA of rank 64 on PEFT's default modules: eight times the parameters of rank 8",
            rank=64,
        ),
        "lora_r8_all_linear": _lora(
            "LoRA of rank 8 on every linear layer: more adapters, which cost time",
            rank=8,
            target_modules="all-linear",
        ),
    },
)

# Task -> PEFT's ``task_type``, where PEFT has one. It is here because ``lora`` must stand alone.
_TASK_TYPES = {
    "sequence-classification": "SEQ_CLS",
    "token-classification": "TOKEN_CLS",
    "causal-lm": "CAUSAL_LM",
    "seq2seq-lm": "SEQ_2_SEQ_LM",
}


@hook("lora")
def lora(
    model: torch.nn.Module,
    task: Task,
    arguments: Any,
    *,
    rank: int,
    target_modules: str | None = None,
    alpha: int = 16,
) -> torch.nn.Module:
    """``model`` with LoRA adapters; only they and the task's head are trainable.

    ``arguments`` are the ``TrainingArguments``.
    """
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=0.0,
        target_modules=target_modules or _default_modules(model),
        task_type=_TASK_TYPES.get(task),
    )
    adapted: torch.nn.Module = get_peft_model(model, config)
    # The newer name of the argument first: transformers 5.23 renamed it.
    checkpointing = (
        getattr(arguments, "activation_checkpointing_kwargs", None)
        or arguments.gradient_checkpointing_kwargs
    )
    if (checkpointing or {}).get("use_reentrant"):
        # Reentrant checkpointing needs an input that requires gradients. Frozen embeddings do not
        # give one.
        model.enable_input_require_grads()  # type: ignore[operator]
    return adapted


def _default_modules(model: torch.nn.Module) -> str | list[str] | None:
    """None, PEFT's own default for the architecture; every linear layer where PEFT has none."""
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as KNOWN

    model_type = getattr(model.config, "model_type", "")
    if model_type in KNOWN:
        return None
    return "all-linear"
