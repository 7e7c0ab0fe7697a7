"""The ``transformers.Trainer`` loop, listened to but not changed."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
import transformers

from jobs.loops import deepspeed
from jobs.loops.base import Setup, Trained
from jobs.loops.meter import Listener


class MeteredTrainer(transformers.Trainer):
    """A Trainer that reports each wait for data, phase, micro-batch and loss to a ``Listener``."""

    meter: Listener
    _left = 0

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """Fetching a step's micro-batches happens here, before ``on_step_begin``: callbacks alone would miss it."""
        self.meter.phase("data")
        begin = time.perf_counter()
        batches = super().get_batch_samples(*args, **kwargs)
        self.meter.data_wait(time.perf_counter() - begin)
        self._left = len(batches[0])
        return batches

    def training_step(
        self, model: torch.nn.Module, inputs: Any, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        """One micro-batch, forward and backward."""
        self._left -= 1
        self.meter.micro_batch(inputs)
        if not self.meter.wants(self._left):
            return torch.zeros((), device=self.args.device)
        loss: torch.Tensor = super().training_step(model, inputs, *args, **kwargs)
        self.meter.phase("upkeep")
        self.meter.loss(loss)
        return loss

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        """The forward pass; the rest of ``training_step`` is the backward pass."""
        self.meter.phase("forward")
        loss = super().compute_loss(*args, **kwargs)
        self.meter.phase("backward")
        return loss

    def _clip_grad_norm(self, *args: Any, **kwargs: Any) -> Any:
        self.meter.phase("clipping")
        norm = super()._clip_grad_norm(*args, **kwargs)  # type: ignore[no-untyped-call]
        self.meter.phase("upkeep")
        return norm

    def train_on(self, meter: Listener) -> None:
        """More steps of the same training, told to ``meter``, until it has enough: the Trainer's own epochs again."""
        self.meter = meter
        self.state.max_steps = sys.maxsize
        self.control.should_training_stop = self.control.should_epoch_stop = False
        loader: Any = self.callback_handler.train_dataloader
        meter.train_begin()
        with deepspeed.phases(self.model_wrapped, meter):
            while not self.control.should_training_stop:
                self._run_epoch(  # type: ignore[no-untyped-call]
                    model=self.model_wrapped,
                    epoch=0,
                    train_dataloader=loader,
                    steps_in_epoch=len(loader),
                    num_update_steps_per_epoch=-(
                        -len(loader) // self.args.gradient_accumulation_steps
                    ),
                    trial=None,
                    ignore_keys_for_eval=None,
                    start_time=time.time(),
                    resume_from_checkpoint=None,
                    epochs_trained=0,
                    steps_trained_in_current_epoch=0,
                )


class _StepListener(transformers.TrainerCallback):
    def __init__(self, trainer: MeteredTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._trainer.meter.train_begin()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._trainer.meter.phase("optimizer")

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._trainer.meter.phase("upkeep")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._trainer.meter.step_end():
            control.should_training_stop = True


def train(setup: Setup) -> Trained:
    """Train with the Trainer for as many steps as the meter wants."""
    trainer = MeteredTrainer(
        model=setup.model,
        args=setup.arguments,
        train_dataset=setup.dataset,
        data_collator=setup.collator,
        optimizers=(setup.optimizer, None),
    )
    trainer.meter = setup.meter
    trainer.add_callback(_StepListener(trainer))
    metrics = trainer.train().metrics
    return Trained(
        model=trainer.model_wrapped,
        optimizer=trainer.optimizer,
        accelerator=trainer.accelerator,
        dataloader=trainer.callback_handler.train_dataloader,
        train_seconds=metrics["train_runtime"],
        samples_per_second=metrics["train_samples_per_second"],
        train_on=trainer.train_on,
    )
