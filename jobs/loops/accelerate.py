"""A plain PyTorch loop through ``accelerate.Accelerator``, as in the Hugging Face guide."""

import itertools
import time
from collections.abc import Sequence
from typing import Any

import torch
import transformers
from accelerate import Accelerator
from torch.utils.data import DataLoader, RandomSampler

from jobs.loops.contract import Setup, Trained
from jobs.loops.meter import Listener
from jobs.loops.row_order import loader_of, measured_rows
from jobs.techniques.axes.loop import enable_checkpointing, label_shares
from jobs.techniques.axes.optimizer import decay_groups


def train(setup: Setup) -> Trained:
    """Train until the meter stops it. As in the guide, nothing is clipped, scheduled or logged."""
    loop = _Loop(setup)
    begin = time.perf_counter()
    samples = loop.run(setup.meter)
    seconds = time.perf_counter() - begin
    return Trained(
        model=loop.model,
        optimizer=loop.optimizer,
        accelerator=loop.accelerator,
        dataloader=loop.dataloader,
        train_seconds=seconds,
        samples_per_second=samples / seconds,
        train_on=loop.run,
        train_rows=loop.train_rows,
        evaluate=loop.evaluate_rows,
        save=loop.save_checkpoint,
        load_best=loop.load_best,
        resume=loop.resume,
        loss_of=lambda model, inputs: model(**inputs).loss,
        loss_scaling="divided" if setup.arguments.gradient_accumulation_steps > 1 else None,
    )


class _OneStep(Listener):
    def step_end(self) -> bool:
        return True


class _Loop:
    def __init__(self, setup: Setup) -> None:
        arguments = setup.arguments
        # The Trainer seeds here, too: equal seeds give equal data orders and dropout.
        transformers.set_seed(arguments.seed)
        enable_checkpointing(setup.model, arguments)
        precision = "bf16" if arguments.bf16 else "fp16" if arguments.fp16 else "no"
        self.accelerator = Accelerator(mixed_precision=precision)
        optimizer = setup.optimizer or named_optimizer(setup.model, arguments)
        self.model, self.optimizer, self.dataloader = self.accelerator.prepare(
            setup.model, optimizer, _dataloader(setup)
        )
        self.model.train()
        self._arguments = arguments
        self._accumulation = arguments.gradient_accumulation_steps

    def run(self, meter: Listener, dataloader: Any = None) -> int:
        """Train until the meter stops it (None: on its own data); returns the number of samples."""
        samples = 0
        is_complete = False
        meter.train_begin()
        batches = itertools.chain.from_iterable(itertools.repeat(dataloader or self.dataloader))
        while not is_complete:
            meter.phase("data")
            begin = time.perf_counter()
            step = list(itertools.islice(batches, self._accumulation))
            meter.data_wait(time.perf_counter() - begin)
            left = self._accumulation
            for batch, share in zip(step, label_shares(self.model, step), strict=True):
                left -= 1
                meter.phase("data")
                samples += len(batch["labels"])
                meter.micro_batch(batch)
                if meter.wants(left):
                    meter.loss(self._forward_and_backward(batch, share, meter))
            meter.phase("optimizer")
            self.optimizer.step()
            meter.phase("upkeep")
            self.optimizer.zero_grad()
            is_complete = meter.step_end()
        return samples

    def train_rows(self, rows: Sequence[Sequence[int]], meter: Listener) -> None:
        self.run(meter, loader_of(rows, self.dataloader, self.accelerator))

    def evaluate_rows(self, rows: Sequence[int], keeps_logits: bool = False) -> None:
        """The loss of these rows, in batches of the arguments' evaluation size."""
        kept = []
        size = self._arguments.eval_batch_size
        batches = [rows[begin : begin + size] for begin in range(0, len(rows), size)]
        self.model.eval()
        try:
            with torch.no_grad():
                for batch in loader_of(batches, self.dataloader, self.accelerator):
                    outputs = self.model(**batch)
                    if keeps_logits:
                        kept.append(outputs.logits)
        finally:
            self.model.train()

    def save_checkpoint(self) -> None:
        """Save model, optimizer and random numbers as ``Accelerator.save_state`` does."""
        self.accelerator.save_state(self._checkpoint)

    def load_best(self) -> None:
        """Load a saved state at the end, optimizer included, as ``Accelerator.load_state`` does."""
        self.accelerator.load_state(self._checkpoint)

    def resume(self) -> None:
        """Continue from the saved state for a step, on an optimizer without states, as in a new
        process."""
        self.optimizer.state.clear()
        self.accelerator.load_state(self._checkpoint)
        self.run(_OneStep())

    @property
    def _checkpoint(self) -> str:
        return f"{self._arguments.output_dir}/checkpoint"

    def _forward_and_backward(
        self, batch: Any, share: float | torch.Tensor, meter: Listener
    ) -> torch.Tensor:
        meter.phase("forward")
        # Gradients of micro-batches add up, so each contributes its share of the step's mean.
        loss: torch.Tensor = self.model(**batch).loss * share
        meter.phase("backward")
        self.accelerator.backward(loss)
        meter.phase("upkeep")
        return loss.detach()


def named_optimizer(model: torch.nn.Module, arguments: Any) -> torch.optim.Optimizer:
    """The optimizer that ``arguments.optim`` names, as the Trainer would build it."""
    factory, kwargs = transformers.Trainer.get_optimizer_cls_and_kwargs(arguments, model)
    # Layer-wise and low-rank optimizers bring parameter groups of their own.
    groups = kwargs.pop("optimizer_dict", None) or kwargs.pop("params", None)
    groups = groups or decay_groups(model, arguments.weight_decay)
    return factory(groups, **kwargs)


def _dataloader(setup: Setup) -> DataLoader[Any]:
    arguments = setup.arguments
    sampler: Any = RandomSampler(setup.dataset)
    if setup.ragged is not None:
        sampler = measured_rows(sampler, setup.ragged, arguments.seed)
    return DataLoader(
        setup.dataset,
        batch_size=arguments.per_device_train_batch_size,
        sampler=sampler,
        collate_fn=setup.collator or transformers.default_data_collator,
        num_workers=arguments.dataloader_num_workers,
        pin_memory=arguments.dataloader_pin_memory,
        persistent_workers=arguments.dataloader_persistent_workers,
        prefetch_factor=arguments.dataloader_prefetch_factor,
    )
