"""A plain PyTorch loop through ``accelerate.Accelerator``: the guide's last section, with its data loader timed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from accelerate import Accelerator
from torch.utils.data import DataLoader

from jobs.loops.base import Setup, Trained
from jobs.loops.meter import Listener
from jobs.techniques.axes.optimizer import decay_groups


def train(setup: Setup) -> Trained:
    """Train for as many steps as the meter wants. Like the guide's loop: no clipping, no scheduler, no logging."""
    loop = _Loop(setup)
    begin = time.perf_counter()
    samples = loop.run(setup.meter)
    seconds = time.perf_counter() - begin
    return Trained(
        model=loop.model,
        optimizer=loop.optimizer,
        accelerator=loop.accelerator,
        dataloader=loop.loader,
        train_seconds=seconds,
        samples_per_second=samples / seconds,
        train_on=loop.train_on,
    )


class _Loop:
    """Model, optimizer and loader as Accelerate prepared them."""

    def __init__(self, setup: Setup) -> None:
        arguments = setup.arguments
        transformers.set_seed(arguments.seed)
        enable_checkpointing(setup.model, arguments)
        precision = "bf16" if arguments.bf16 else "fp16" if arguments.fp16 else "no"
        self.accelerator = Accelerator(mixed_precision=precision)
        optimizer = setup.optimizer or named_optimizer(setup.model, arguments)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(
            setup.model, optimizer, _dataloader(setup)
        )
        self.model.train()
        self._accumulation = arguments.gradient_accumulation_steps

    def run(self, meter: Listener) -> int:
        """Train until the meter has enough; returns the samples trained on."""
        samples, complete = 0, False
        meter.train_begin()
        batches = _timed(_endless(self.loader), meter.data_wait)
        while not complete:
            for left in reversed(range(self._accumulation)):
                meter.phase("data")
                batch = next(batches)
                samples += len(batch["labels"])
                meter.micro_batch(batch)
                if meter.wants(left):
                    meter.loss(self._micro_step(batch, meter))
            self._update(meter)
            complete = meter.step_end()
        return samples

    def train_on(self, meter: Listener) -> None:
        """As ``run``."""
        self.run(meter)

    def _micro_step(self, batch: Any, meter: Listener) -> torch.Tensor:
        meter.phase("forward")
        loss: torch.Tensor = self.model(**batch).loss / self._accumulation
        meter.phase("backward")
        self.accelerator.backward(loss)
        meter.phase("upkeep")
        return loss.detach()

    def _update(self, meter: Listener) -> None:
        meter.phase("optimizer")
        self.optimizer.step()
        meter.phase("upkeep")
        self.optimizer.zero_grad()


def enable_checkpointing(model: Any, arguments: Any) -> None:
    """Checkpoint activations as the training arguments ask, under either of the names they have had."""
    newer = getattr(arguments, "activation_checkpointing", None)
    if newer:
        kwargs = dict(arguments.activation_checkpointing_kwargs or {})
        every, offload = kwargs.pop("every_n_layers", 1), kwargs.pop("offload", False)
        model.activation_checkpointing_enable(kwargs or None, every_n_layers=every, offload=offload)
    elif newer is None and arguments.gradient_checkpointing:
        model.gradient_checkpointing_enable(arguments.gradient_checkpointing_kwargs)


def named_optimizer(model: torch.nn.Module, arguments: Any) -> torch.optim.Optimizer:
    """The optimizer that ``arguments.optim`` names, as the Trainer would build it."""
    factory, kwargs = transformers.Trainer.get_optimizer_cls_and_kwargs(arguments, model)  # type: ignore[arg-type]
    if groups := kwargs.pop("optimizer_dict", None) or kwargs.pop("params", None):
        return factory(groups, **kwargs)  # type: ignore[no-any-return]
    return factory(decay_groups(model, arguments.weight_decay), **kwargs)  # type: ignore[no-any-return]


def _dataloader(setup: Setup) -> DataLoader[Any]:
    arguments = setup.arguments
    return DataLoader(
        setup.dataset,
        batch_size=arguments.per_device_train_batch_size,
        shuffle=True,
        collate_fn=setup.collator or transformers.default_data_collator,
        num_workers=arguments.dataloader_num_workers,
        pin_memory=arguments.dataloader_pin_memory,
        persistent_workers=arguments.dataloader_persistent_workers,
        prefetch_factor=arguments.dataloader_prefetch_factor,
    )


def _endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def _timed(batches: Iterator[Any], report: Any) -> Iterator[Any]:
    while True:
        begin = time.perf_counter()
        batch = next(batches)
        report(time.perf_counter() - begin)
        yield batch
