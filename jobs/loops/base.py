"""What a training loop is given, and what it leaves behind for the inspection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from jobs.loops.meter import Listener


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """Everything a loop needs, built and placed: the model is on its device."""

    model: torch.nn.Module
    dataset: Any
    collator: Callable[[list[Any]], dict[str, torch.Tensor]] | None
    arguments: Any
    """``transformers.TrainingArguments``."""
    optimizer: torch.optim.Optimizer | None
    """An optimizer built by a technique's hook; None: the loop creates the one ``arguments`` names."""
    meter: Listener


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """The live objects after training, and the guide's two figures of it."""

    model: torch.nn.Module
    """As trained: wrapped by DeepSpeed or torch.compile where those are in play."""
    optimizer: Any
    accelerator: Any
    dataloader: Any
    train_seconds: float
    """Wall-clock of the whole training, warm-up included: the guide's "Time"."""
    samples_per_second: float
    """The guide's "Samples/second": all samples over ``train_seconds``."""
    train_on: Callable[[Listener], None]
    """Trains more steps with these very objects, telling another listener, until that has enough."""
