"""The ``transformers.Trainer`` loop, listened to but not changed."""

from __future__ import annotations

import time
from typing import Any

import torch
import transformers

from jobs.loops.base import Setup, Trained
from jobs.loops.meter import Meter


class MeteredTrainer(transformers.Trainer):
    """A Trainer that reports each wait for data, micro-batch and loss to a ``Meter``."""

    meter: Meter

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """Fetching a step's micro-batches happens here, before ``on_step_begin``: callbacks alone would miss it."""
        begin = time.perf_counter()
        batches = super().get_batch_samples(*args, **kwargs)
        self.meter.data_wait(time.perf_counter() - begin)
        return batches

    def training_step(self, model: torch.nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """One micro-batch, forward and backward."""
        self.meter.micro_batch(inputs)
        loss: torch.Tensor = super().training_step(model, inputs, *args, **kwargs)
        self.meter.loss(loss)
        return loss


class _StepListener(transformers.TrainerCallback):
    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._meter.train_begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._meter.step_end():
            control.should_training_stop = True


def train(setup: Setup) -> Trained:
    """Train with the Trainer for as many steps as the meter wants."""
    trainer = MeteredTrainer(
        model=setup.model,
        args=setup.arguments,
        train_dataset=setup.dataset,
        data_collator=setup.collator,
        optimizers=(setup.optimizer, None),
        callbacks=[_StepListener(setup.meter)],
    )
    trainer.meter = setup.meter
    metrics = trainer.train().metrics
    return Trained(
        model=trainer.model_wrapped,
        optimizer=trainer.optimizer,
        accelerator=trainer.accelerator,
        dataloader=trainer.callback_handler.train_dataloader,
        train_seconds=metrics["train_runtime"],
        samples_per_second=metrics["train_samples_per_second"],
    )
