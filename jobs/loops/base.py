"""What a training loop gets, and what it leaves behind for inspection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from jobs.loops.meter import Listener


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
    train_on: Callable[[Listener], None]
    """Trains more steps with the same objects, until the given listener stops it."""
