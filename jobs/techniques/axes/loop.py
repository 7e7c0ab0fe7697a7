"""Loop axis: the code that runs the training. train.py gets copies of the functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jobs.spec import Hook
from jobs.techniques.hooks import hooks_of
from jobs.techniques.variant import Axis, Variant, add

if TYPE_CHECKING:
    import torch

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
            "learning-rate schedule and logging; rows come in another order than the Trainer's",
            hooks={"loop": Hook("accelerate_loop")},
            traits=("accelerate",),
        ),
    },
)
add(LOOP)
hooks_of("jobs.loops.trainer", {"trainer_loop": "train"})
hooks_of("jobs.loops.accelerate", {"accelerate_loop": "train"})


def label_shares(model: Any, step: Sequence[Any]) -> Sequence[float | torch.Tensor]:
    """What each micro-batch contributes to the mean loss of a step: its share of the labels."""
    import torch

    if len(step) == 1:
        return [1.0]
    # A causal model predicts the next token, so the first label of a row counts for nothing. Models
    # without a type of loss, such as GPT-2, have that loss, too.
    is_shifted = not getattr(model.config, "is_encoder_decoder", False) and getattr(
        model, "loss_type", ""
    ) in (None, "ForCausalLM", "ForConditionalGeneration")
    counts = []
    for batch in step:
        labels = batch["labels"]
        counts.append((labels[..., 1:] if is_shifted else labels).ne(-100).sum())
    total = torch.stack(counts).sum().clamp(min=1)
    return [count / total for count in counts]


def enable_checkpointing(model: Any, arguments: Any) -> None:
    """Checkpoint activations as the arguments ask, by their names since or before 5.23."""
    # None: the installed transformers has no such argument, or the caller left it open.
    is_enabled = getattr(arguments, "activation_checkpointing", None)
    if is_enabled:
        kwargs = dict(arguments.activation_checkpointing_kwargs or {})
        every = kwargs.pop("every_n_layers", 1)
        offload = kwargs.pop("offload", False)
        model.activation_checkpointing_enable(kwargs or None, every_n_layers=every, offload=offload)
    elif is_enabled is None and arguments.gradient_checkpointing:
        model.gradient_checkpointing_enable(arguments.gradient_checkpointing_kwargs)
