"""What a training loop gets, and what it returns for inspection."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from jobs.gradient_check import LossScaling
from jobs.loops.meter import Listener
from jobs.ragged_steps import RaggedSteps


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """Everything that a loop needs; the model is on its device."""

    model: torch.nn.Module
    dataset: Any
    collator: Callable[[list[Any]], dict[str, torch.Tensor]] | None  # None: the library's default
    arguments: Any  # ``transformers.TrainingArguments``
    optimizer: torch.optim.Optimizer | None  # a hook's; None: the one that ``arguments`` names
    meter: Listener
    ragged: RaggedSteps | None = None  # the steps to train on; None: all rows are equally long
    user: Any = None  # the user's own code, as the service ``user_objects`` returns it


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """The live objects after training, and the two speed figures of the Hugging Face guide."""

    model: torch.nn.Module  # as trained: DeepSpeed and torch.compile wrap it
    optimizer: Any
    accelerator: Any
    dataloader: Any
    train_seconds: float  # wall time of the whole training, warm-up included: the guide's "Time"
    samples_per_second: float  # all samples over ``train_seconds``: the guide's "Samples/second"
    train_on: Callable[[Listener], object]  # trains more steps, until the listener stops it
    train_rows: Callable[[Sequence[Sequence[int]], Listener], None]  # the same on micro-batches
    loss_scaling: LossScaling | None = None  # None: nothing is accumulated
    accumulated_loss_ratio: Callable[[], float | None] | None = None  # ``loss_ratio``
    # on these rows, and whether their logits are kept; None: the loop cannot
    evaluate: Callable[[Sequence[int], bool], None] | None = None
    trainer_class: str = ""  # module and name of the Trainer's class; empty: a plain loop
    trainer_settings: str = ""  # what its class of arguments adds to ``TrainingArguments``
    # (model, micro-batch) -> the mean loss of the training; None: it has no such loss
    loss_of: Callable[[torch.nn.Module, Mapping[str, Any]], torch.Tensor] | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)  # those of ``techniques.COLUMNS``
    reference_model: torch.nn.Module | None = None  # which a preference training compares with
    save: Callable[[], None] | None = None  # saves a checkpoint; None: the loop cannot
    load_best: Callable[[], None] | None = None  # loads the weights of that checkpoint
    resume: Callable[[], None] | None = None  # continues from that checkpoint for a step
