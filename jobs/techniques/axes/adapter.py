"""Adapter axis: parameter-efficient fine-tuning through PEFT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.spec import Hook
from jobs.tasks import PEFT_TASK_TYPES
from jobs.techniques.base import Axis, Variant
from jobs.techniques.hooks import hook

if TYPE_CHECKING:
    import torch

    from jobs.spec import Task


def _lora(doc: str, **kwargs: Any) -> Variant:
    return Variant(
        doc=doc,
        hooks={"model": Hook("lora", kwargs)},
        requires=("package:peft",),
        numerical_effect="training",
        traits=("peft",),
    )


ADAPTER = Axis(
    name="adapter",
    doc="which parameters are trained: all, or an adapter's",
    default="none",
    variants={
        "none": Variant(doc="full training: every parameter"),
        "lora_r8": _lora("LoRA of rank 8 on PEFT's default modules (query and value)", rank=8),
        "lora_r64": _lora("LoRA of rank 64 on PEFT's default modules", rank=64),
        "lora_r8_all_linear": _lora(
            "LoRA of rank 8 on every linear layer", rank=8, target_modules="all-linear"
        ),
    },
)


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
    """``model`` with LoRA adapters; only they and the task's head are trainable. ``arguments``: TrainingArguments."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=0.0,
        target_modules=target_modules or _default_modules(model),
        task_type=PEFT_TASK_TYPES.get(task),
    )
    adapted: torch.nn.Module = get_peft_model(model, config)
    checkpointing = (
        getattr(arguments, "activation_checkpointing_kwargs", None)
        or arguments.gradient_checkpointing_kwargs
    )
    if (checkpointing or {}).get("use_reentrant"):
        # It needs an input that requires gradients, which frozen embeddings do not give.
        model.enable_input_require_grads()  # type: ignore[operator]
    return adapted


def _default_modules(model: torch.nn.Module) -> str | list[str] | None:
    """PEFT's own default for the architecture; every linear layer where PEFT has none."""
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as KNOWN

    model_type = getattr(model.config, "model_type", "")
    return None if model_type in KNOWN else "all-linear"
