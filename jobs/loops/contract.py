"""What a training loop gets, and what it returns for inspection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from jobs.loops.meter import Listener
from jobs.loss_scaling import LossScaling


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """Everything that a loop needs; the model is on its device."""

    model: torch.nn.Module
    dataset: Any
    collator: Callable[[list[Any]], dict[str, torch.Tensor]] | None
    """None: the library's default."""
    arguments: Any
    """``transformers.TrainingArguments``."""
    optimizer: torch.optim.Optimizer | None
    """Made by a technique's hook; None: the loop creates the one that ``arguments`` names."""
    meter: Listener
    user: Any = None
    """The user's own Trainer, callbacks and collator, of the service ``user_objects``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """The live objects after training, and the two speed figures of the Hugging Face guide."""

    model: torch.nn.Module
    """As trained: DeepSpeed and torch.compile wrap it."""
    optimizer: Any
    accelerator: Any
    dataloader: Any
    train_seconds: float
    """Wall time of the whole training, warm-up included: the guide's "Time"."""
    samples_per_second: float
    """All samples over ``train_seconds``: the guide's "Samples/second"."""
    train_on: Callable[[Listener], object]
    """Trains more steps with the same objects, until the given listener stops it."""
    train_rows: Callable[[Sequence[Sequence[int]], Listener], None]
    """Does the same on these rows of the dataset, given as micro-batches."""
    loss_scaling: LossScaling | None = None
    """What divides the loss of an accumulated step; None: nothing is accumulated."""
    accumulated_loss_ratio: Callable[[], float | None] | None = None
    """``accumulated_loss.loss_ratio``; None: the loop's own loss needs no check."""
    evaluate: Callable[[Sequence[int]], None] | None = None
    """Evaluates on these rows, in batches of the arguments' size; None: the loop cannot."""
    trainer_class: str = ""
    """Module and name of the Trainer's class; empty: a plain loop."""
    trainer_settings: str = ""
    """The settings that its own class of arguments adds to ``TrainingArguments``."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Column -> value, for those of ``jobs.techniques.COLUMNS`` that this loop measures."""
    reference_model: torch.nn.Module | None = None
    """A model in memory that is not trained, with which a preference training compares."""
    save: Callable[[], None] | None = None
    """Saves a checkpoint with optimizer states in the trial's own folder; None: the loop cannot."""
