"""The loss of accumulated steps in the Trainer: what divides it, its correction, and a check."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import transformers

from jobs.loops.item_count import is_used, is_used_by, watched
from jobs.loss_scaling import LossScaling


class LossScale:
    """What divides the loss of an accumulated step, found out in the first forward pass.

    The Trainer hands ``num_items_in_batch`` to every model whose ``forward`` takes any keyword, and
    trusts it to divide by that count, which is of all micro-batches and ranks of a step. If the
    model does not compute with the count, this class lets the Trainer divide.
    """

    def __init__(self, trainer: transformers.Trainer) -> None:
        self._trainer = trainer
        self.scaling: LossScaling | None = None  # None: not known yet, or nothing is accumulated

    @classmethod
    def as_declared(cls, trainer: transformers.Trainer) -> LossScale:
        """For a Trainer whose class computes the loss itself: nothing is corrected. The class may
        say who divides (since transformers 5.19). Else it does if it gets the count."""
        scale = cls(trainer)
        divides = getattr(trainer, "loss_is_scaled_for_ga", None)
        if divides is None:
            divides = trainer.model_accepts_loss_kwargs
        if trainer.args.gradient_accumulation_steps > 1:
            scale.scaling = "native" if divides else "divided"
        return scale

    def compute(
        self,
        compute_loss: Callable[..., Any],
        model: Any,
        inputs: Mapping[str, Any],
        *args: Any,
        num_items_in_batch: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Call the Trainer's own ``compute_loss``; the first call also finds out who divides."""
        count = num_items_in_batch
        arguments = self._trainer.args
        accumulates = arguments.gradient_accumulation_steps * arguments.world_size > 1
        if not accumulates or self.scaling is not None:
            return compute_loss(model, inputs, *args, num_items_in_batch=count, **kwargs)
        if not isinstance(count, torch.Tensor):
            # The Trainer knows that this model takes no count, and divides.
            self.scaling = "divided"
        elif is_compiled(model):
            # A watched count would make torch.compile compile again.
            self._decide(used=self._is_used_uncompiled(compute_loss, inputs, count))
        else:
            count = watched(count)
        loss = compute_loss(model, inputs, *args, num_items_in_batch=count, **kwargs)
        if self.scaling is None:
            self._decide(used=is_used(count))
            if not is_used(count) and arguments.average_tokens_across_devices:
                loss = loss / arguments.world_size  # by which the Trainer has multiplied it
        return loss

    def _decide(self, *, used: bool) -> None:
        self.scaling = "native" if used else "corrected"
        if not used:
            self._trainer.model_accepts_loss_kwargs = False
            print("the model ignores num_items_in_batch: the Trainer divides its loss", flush=True)

    def _is_used_uncompiled(
        self, compute_loss: Callable[..., Any], inputs: Mapping[str, Any], count: torch.Tensor
    ) -> bool:
        """Whether the uncompiled model computes with the count; False if it cannot be tried."""

        def compute(model: Any, fake_inputs: Mapping[str, Any], fake_count: Any) -> Any:
            return compute_loss(model, dict(fake_inputs), num_items_in_batch=fake_count)

        model: Any = self._trainer.model
        try:
            with _same_draws():
                return is_used_by(compute, model, inputs, count)
        except Exception:
            traceback.print_exc()
            return False


def loss_ratio(trainer: transformers.Trainer) -> float | None:
    """The loss of a step of equal micro-batches, divided by the loss of one; 1 if it is right. None
    if a loss is zero or not finite. Weights, gradients and random numbers stay as they are."""
    batch = _first_micro_batch(trainer)
    accumulation: int = trainer.args.gradient_accumulation_steps
    # Each of the step's equal micro-batches contributes this much to the gradient.
    share = _loss_for_gradient(trainer, batch, micro_batches=accumulation)
    reference = _loss_for_gradient(trainer, batch, micro_batches=1)
    if not reference or not torch.tensor([share, reference]).isfinite().all():
        return None
    return accumulation * share / reference


def _first_micro_batch(trainer: transformers.Trainer) -> dict[str, Any]:
    # Without starting workers.
    loader: Any = trainer.callback_handler.train_dataloader
    size = min(trainer.args.per_device_train_batch_size, len(loader.dataset))
    rows = [loader.dataset[index] for index in range(size)]
    with _same_draws():
        batch = loader.collate_fn(rows)
    return dict(trainer._prepare_inputs(batch))


def _loss_for_gradient(
    trainer: transformers.Trainer, batch: Mapping[str, Any], *, micro_batches: int
) -> float:
    """The loss that the Trainer would backpropagate for one of ``micro_batches`` equal batches."""
    count = trainer._get_num_items_in_batch([batch] * micro_batches, trainer.args.device)
    trainer.current_gradient_accumulation_steps = micro_batches
    # ZeRO-3 gathers its parameters in the engine's forward pass.
    is_engine = hasattr(trainer.model_wrapped, "zero_optimization_stage")
    model: Any = trainer.model_wrapped if is_engine else trainer.model
    # A forward pass without gradients would be compiled again.
    uncompiled = torch.compiler.set_stance("force_eager")
    with uncompiled, _without_backward(trainer.accelerator), _same_draws(), torch.no_grad():
        return float(trainer.training_step(model, dict(batch), count))


@contextmanager
def _without_backward(accelerator: Any) -> Iterator[None]:
    # An attribute of the instance hides the method of its class until it is deleted.
    accelerator.backward = lambda *args, **kwargs: None
    try:
        yield
    finally:
        del accelerator.backward


@contextmanager
def _same_draws() -> Iterator[None]:
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(0)
        yield


def is_compiled(model: torch.nn.Module) -> bool:
    """Whether torch.compile compiled the model or one of its modules."""
    return any(
        getattr(module, "_compiled_call_impl", None) or hasattr(module, "_orig_mod")
        for module in model.modules()
    )
