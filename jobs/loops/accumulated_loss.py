"""The loss of accumulated steps in the Trainer: what divides it, its correction, and a check."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import transformers

from jobs.gradient_check import LossScaling

_SAME_VALUE = frozenset(
    {
        *("to", "type", "cuda", "cpu", "float", "double", "half", "bfloat16", "int", "long"),
        *("detach", "clone", "contiguous", "requires_grad_", "view", "reshape", "expand"),
        *("squeeze", "unsqueeze", "__get__", "__deepcopy__"),
    }
)
"""Functions whose result is the count itself, in another form. ``__get__`` reads an attribute."""
_COMPARISONS = frozenset(
    {"__bool__", "gt", "ge", "lt", "le", "eq", "ne", "__gt__", "__ge__", "__lt__", "__le__"}
)
"""Functions that only ask about the count, as ``if count > 0`` does."""
_NUMBERS = frozenset({"item", "tolist", "numpy", "__float__", "__int__", "__index__", "__array__"})
"""Functions that turn the count into a plain number, whose use cannot be followed further."""


class WatchedCount(torch.Tensor):
    """Notes whether anything is computed with it, by the same kernels and in the same memory."""

    _plain: torch.Tensor
    """The tensor that takes its place in every computation."""
    _uses: list[str]
    """Names of the functions that computed with it; its copies share the list."""

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of PyTorch on plain tensors, and note it if it computes a new value."""
        counts: list[WatchedCount] = []
        plain_args = _unwrapped(args, counts)
        plain_kwargs = {name: _unwrapped(value, counts) for name, value in (kwargs or {}).items()}
        result = function(*plain_args, **plain_kwargs)
        name = getattr(function, "__name__", "")
        if not counts or name in _COMPARISONS:
            return result
        # Any other result is an attribute, such as the shape, and is no use of the count.
        is_tensor = isinstance(result, torch.Tensor)
        if is_tensor and name in _SAME_VALUE:
            # Made from the original count, because a fake tensor cannot become a WatchedCount.
            with torch._C.DisableTorchFunctionSubclass():
                return watched(counts[0], result, counts[0]._uses)
        if is_tensor or name in _NUMBERS:
            counts[0]._uses.append(name)
        return result


def watched(
    count: torch.Tensor, plain: torch.Tensor | None = None, uses: list[str] | None = None
) -> WatchedCount:
    """``count``, with ``plain`` in its place in computations, and a note of what ``uses`` it."""
    shell = count.as_subclass(WatchedCount)
    shell._plain = count if plain is None else plain
    shell._uses = [] if uses is None else uses
    return shell


def is_used(count: WatchedCount) -> bool:
    """Whether anything was computed with a watched count, or with a copy of it."""
    return bool(count._uses)


def is_used_by(
    compute_loss: Callable[[Callable[..., Any], Mapping[str, Any], WatchedCount], Any],
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    count: torch.Tensor,
) -> bool:
    """Whether ``compute_loss(model, inputs, count)`` uses the count, tried without gradients. It is
    tried on fake tensors, which take no memory. Parameters that FSDP2 shards are real, because its
    hooks would gather fake ones and keep them. Compiled parts run uncompiled: their kernels would
    read memory that fake tensors do not have. A model that needs values of fake tensors raises its
    own error."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed.fsdp import FSDPModule
    from torch.func import functional_call

    watched_count = watched(count)
    with torch.compiler.set_stance("force_eager"), torch.no_grad():
        if any(isinstance(module, FSDPModule) for module in model.modules()):
            compute_loss(model, inputs, watched_count)
            return is_used(watched_count)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            state = _fake({**dict(model.named_parameters()), **dict(model.named_buffers())}, mode)

            def forward(**arguments: Any) -> Any:
                return functional_call(model, state, (), arguments)

            compute_loss(forward, _fake(inputs, mode), watched_count)
    return is_used(watched_count)


def _fake(values: Mapping[str, Any], mode: Any) -> dict[str, Any]:
    return {
        name: mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
        for name, value in values.items()
    }


def _unwrapped(value: Any, counts: list[WatchedCount]) -> Any:
    """``value`` with plain tensors in place of watched counts, which are added to ``counts``."""
    if isinstance(value, WatchedCount):
        counts.append(value)
        return value._plain
    if type(value) in (list, tuple):
        return type(value)(_unwrapped(item, counts) for item in value)
    return value


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
