"""The ``transformers.Trainer`` loop, with a meter. Its one correction is that of a wrong loss."""

import dataclasses
import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import transformers

from jobs.loops.accumulated_loss import LossScale, loss_ratio
from jobs.loops.contract import Setup, Trained
from jobs.loops.deepspeed import reported_phases
from jobs.loops.meter import Listener
from jobs.loops.row_order import loader_of, measured_rows, subset
from jobs.ragged_steps import RaggedSteps

if TYPE_CHECKING:
    from transformers import Trainer as _Base
else:
    _Base = object

COUNT = "counted_samples"
"""Key of a batch with its number of samples, for batches whose shape does not say it."""


class Metered(_Base):
    """Mixed into a Trainer by ``metered``: reports waits, phases, micro-batches and losses."""

    meter: Listener
    loss_scale: LossScale
    ragged: RaggedSteps | None = None
    _micro_batches_left = 0
    """Micro-batches of the current step that come after the one being trained on."""

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """Fetch a step's micro-batches, which the Trainer does before ``on_step_begin``."""
        self.meter.phase("data")
        begin = time.perf_counter()
        batches = super().get_batch_samples(*args, **kwargs)
        self.meter.data_wait(time.perf_counter() - begin)
        self._micro_batches_left = len(batches[0])
        return batches

    def training_step(
        self, model: torch.nn.Module, inputs: Any, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        self._micro_batches_left -= 1
        self.meter.micro_batch(inputs)
        # A profile leaves out most micro-batches. The Trainer still adds up a loss for each.
        if not self.meter.wants(self._micro_batches_left):
            return torch.zeros((), device=self.args.device)
        loss: torch.Tensor = super().training_step(model, inputs, *args, **kwargs)
        self.meter.phase("upkeep")
        self.meter.loss(loss)
        return loss

    def _prepare_inputs(self, inputs: Any) -> Any:
        if COUNT in inputs:
            inputs = {name: value for name, value in inputs.items() if name != COUNT}
        return super()._prepare_inputs(inputs)

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        """The forward pass; what follows it in ``training_step`` is the backward pass."""
        self.meter.phase("forward")
        loss = self.loss_scale.compute(super().compute_loss, *args, **kwargs)
        self.meter.phase("backward")
        return loss

    def loss_of(self, model: torch.nn.Module, inputs: Mapping[str, Any]) -> torch.Tensor:
        """The mean loss of a micro-batch, without a report to the meter."""
        kept = {name: value for name, value in inputs.items() if name != COUNT}
        return super().compute_loss(model, kept)

    def _clip_grad_norm(self, *args: Any, **kwargs: Any) -> Any:
        self.meter.phase("clipping")
        norm = super()._clip_grad_norm(*args, **kwargs)
        self.meter.phase("upkeep")
        return norm

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
        sampler = super()._get_train_sampler(*args, **kwargs)
        if self.ragged is None or sampler is None:
            return sampler
        return measured_rows(sampler, self.ragged, self.args.seed)

    def train_rows(self, rows: Sequence[Sequence[int]], meter: Listener) -> None:
        loader = loader_of(rows, self.callback_handler.train_dataloader, self.accelerator)
        self.train_on(meter, loader)

    def evaluate_rows(self, rows: Sequence[int], keeps_logits: bool = False) -> None:
        """Evaluate on these rows as ``Trainer.evaluate`` does, without a report to the meter."""
        self.meter = Listener()
        # With any function of metrics, the Trainer keeps the logits as its arguments say.
        if keeps_logits and getattr(self, "compute_metrics", None) is None:
            self.compute_metrics = _no_metrics
        self.evaluate(eval_dataset=subset(self.train_dataset, rows))

    def checked_loss_ratio(self) -> float | None:
        """``loss_ratio`` of one micro-batch, which the meter does not count."""
        self.meter = Listener()
        return loss_ratio(self)

    def save_checkpoint(self) -> None:
        """Save what the Trainer saves at a step: model, optimizer, schedule and random numbers."""
        self._save_checkpoint(self.model_wrapped, trial=None)

    def load_best(self) -> None:
        """Load the saved weights as ``load_best_model_at_end`` does."""
        self.state.best_model_checkpoint = self._checkpoint
        self._load_best_model()

    def resume(self) -> None:
        """Continue from the saved checkpoint for a step, on an optimizer without states, as in a
        new process. NotImplementedError for DeepSpeed, whose engine a process makes once."""
        if self.is_deepspeed_enabled:
            raise NotImplementedError("a process of DeepSpeed cannot resume its own checkpoint")
        self.optimizer.state.clear()
        self.meter = Listener()
        self.args.ignore_data_skip = True
        self.args.max_steps = self.state.global_step + 1
        self.train(resume_from_checkpoint=self._checkpoint)

    @property
    def _checkpoint(self) -> str:
        return f"{self.args.output_dir}/checkpoint-{self.state.global_step}"

    def train_on(self, meter: Listener, dataloader: Any = None) -> None:
        """Train epochs of a data loader (None: of the training's), until ``meter`` stops it."""
        if dataloader is None:
            dataloader = self.callback_handler.train_dataloader
        self.meter = meter
        # The first training has reached its limit: lift it, so that only the meter ends this one.
        self.state.max_steps = sys.maxsize
        self.control.should_training_stop = False
        self.control.should_epoch_stop = False
        meter.train_begin()
        # An epoch's last step may have fewer micro-batches than the others.
        updates = math.ceil(len(dataloader) / self.args.gradient_accumulation_steps)
        with reported_phases(self.model_wrapped, meter):
            while not self.control.should_training_stop:
                self._run_epoch(
                    model=self.model_wrapped,
                    epoch=0,
                    train_dataloader=dataloader,
                    steps_in_epoch=len(dataloader),
                    num_update_steps_per_epoch=updates,
                    trial=None,
                    ignore_keys_for_eval=None,
                    start_time=time.time(),
                    resume_from_checkpoint=None,
                    epochs_trained=0,
                    steps_trained_in_current_epoch=0,
                )


def _no_metrics(predictions: Any, **kwargs: Any) -> dict[str, float]:
    return {}


class _StepReporter(transformers.TrainerCallback):
    def __init__(self, trainer: Metered) -> None:
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


def metered(trainer_class: type, **attributes: Any) -> type[Metered]:
    """A subclass of a Trainer's class that reports to a ``Listener``, with further attributes."""
    return type(trainer_class.__name__, (Metered, trainer_class), attributes)


def train(setup: Setup) -> Trained:
    """Train with the Trainer until the meter stops it."""
    parts = {
        "model": setup.model,
        "args": setup.arguments,
        "train_dataset": setup.dataset,
        "data_collator": setup.collator,
        "optimizers": (setup.optimizer, None),
    }
    if setup.user is None:
        trainer = metered(transformers.Trainer)(**parts)
        return measured(trainer, setup, LossScale(trainer))
    trainer = setup.user.trainer_of(parts, transformers.Trainer)
    scale = LossScale.as_declared if setup.user.computes_the_loss else LossScale
    return measured(trainer, setup, scale(trainer))


def measured(trainer: Metered, setup: Setup, loss_scale: LossScale) -> Trained:
    """Train with a Trainer that was made from ``setup``, until the meter stops it."""
    trainer.meter = setup.meter
    trainer.loss_scale = loss_scale
    trainer.ragged = setup.ragged
    trainer.add_callback(_StepReporter(trainer))
    metrics = trainer.train().metrics
    kind = type(trainer).__mro__[2]
    return Trained(
        model=trainer.model_wrapped,
        optimizer=trainer.optimizer,
        accelerator=trainer.accelerator,
        dataloader=trainer.callback_handler.train_dataloader,
        train_seconds=metrics["train_runtime"],
        samples_per_second=metrics["train_samples_per_second"],
        train_on=trainer.train_on,
        train_rows=trainer.train_rows,
        evaluate=trainer.evaluate_rows,
        save=trainer.save_checkpoint,
        load_best=trainer.load_best,
        resume=trainer.resume,
        loss_of=trainer.loss_of,
        loss_scaling=trainer.loss_scale.scaling,
        accumulated_loss_ratio=trainer.checked_loss_ratio,
        trainer_class=f"{kind.__module__}.{kind.__qualname__}",
        trainer_settings=_settings(trainer.args),
    )


def _settings(arguments: Any) -> str:
    """The settings that a Trainer's own class of arguments adds and that are not its defaults."""
    known = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
    own = [field for field in dataclasses.fields(arguments) if field.name not in known]
    values = [(field, getattr(arguments, field.name)) for field in own]
    return ", ".join(f"{field.name}={value}" for field, value in values if value != field.default)
