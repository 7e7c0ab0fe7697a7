"""Compares the gradients of one optimizer step with the reference's, tensor by tensor."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from jobs.gradient_check import GradientCheck
from jobs.loops.contract import Trained
from jobs.loops.meter import Listener
from jobs.spec import TrialSpec
from jobs.trackers.tracker import Phase
from jobs.trial.gradients.reference import (
    LossOf,
    NotComparableError,
    gradients,
    halves,
    named_parameters,
    predicted_share,
    restore,
    separate_rows,
    with_weights,
)
from jobs.trial.gradients.rounding import DRAWS, RandomRounding, amplitude, bounds, unit_roundoff

Tensors = dict[str, torch.Tensor]


class CapturedStep(Listener):
    """A ``Listener`` that copies a step to the host, before clipping and the optimizer change it.
    With a loss scale the step is repeated until nothing overflows."""

    def __init__(self, parameters: Mapping[str, torch.Tensor], scaler: Any) -> None:
        self._parameters = parameters
        self._scaler = scaler
        self._steps = 0
        self.weights: Tensors = {}
        self.micro_batches: list[dict[str, Any]] = []
        self.gradients: Tensors = {}
        """Name -> gradient; without the parameters that have none."""

    def micro_batch(self, inputs: Mapping[str, Any]) -> None:
        if not self.micro_batches:
            self.weights = _copies((name, full(own)) for name, own in self._parameters.items())
        # A model may change its inputs in place.
        self.micro_batches.append(
            {
                name: value.clone() if isinstance(value, torch.Tensor) else value
                for name, value in inputs.items()
            }
        )

    def phase(self, name: Phase) -> None:
        if name in ("clipping", "optimizer") and not self.gradients:
            self.gradients = _copies(
                (name, parameter.grad)
                for name, parameter in self._parameters.items()
                if parameter.grad is not None
            )
            scale = 1.0 if self._scaler is None else float(self._scaler.get_scale())
            if scale != 1.0:
                self.gradients = {name: own.float() / scale for name, own in self.gradients.items()}

    def step_end(self) -> bool:
        self._steps += 1
        is_finite = all(bool(own.isfinite().all()) for own in self.gradients.values())
        # PyTorch's loss scale begins at 2^16 and is halved in each step that overflows.
        if self._scaler is None or is_finite or self._steps == 20:
            return True
        self.micro_batches, self.gradients = [], {}
        return False


def full(weight: torch.Tensor) -> torch.Tensor:
    """What bitsandbytes multiplies with, if a weight is packed in 4 bits; else the weight."""
    if (state := getattr(weight, "quant_state", None)) is None:
        return weight
    from bitsandbytes.functional import dequantize_4bit

    return dequantize_4bit(weight.data, state)


def _copies(tensors: Iterable[tuple[str, torch.Tensor]]) -> Tensors:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors}


def compare(
    trained: Trained, spec: TrialSpec, make_reference: Callable[[], torch.nn.Module]
) -> GradientCheck:
    """Train one more step and compare its gradients. Raises what training may raise.
    ``make_reference`` builds the model in fp32. NotComparableError if there is nothing to compare.
    """
    if reason := _obstacle(trained, spec):
        raise NotComparableError(reason)
    model = trained.accelerator.unwrap_model(trained.model, keep_torch_compile=False)
    parameters = named_parameters(model)
    _fill_zeros(parameters, spec.measure.seed)
    step = CapturedStep(parameters, trained.accelerator.scaler)
    trained.train_on(step)
    if not step.gradients:
        raise NotComparableError("its optimizer uses up each gradient within the backward pass")
    number_format = _number_format(trained, model)
    assert trained.loss_of is not None
    # The trial's own weights and states are no longer needed, and the reference takes memory.
    trained.optimizer.state.clear()
    for parameter in model.parameters():
        parameter.grad, parameter.data = None, parameter.data.new_empty(0)
    reference = with_weights(make_reference(), model, step.weights)
    return _compared(reference, trained.loss_of, step, number_format)


def _compared(
    reference: torch.nn.Module, loss_of: LossOf, step: CapturedStep, number_format: str
) -> GradientCheck:
    batches: Sequence[Mapping[str, Any]] = [separate_rows(each) for each in step.micro_batches]
    explained = None
    while explained is None:
        try:
            explained = _explained(reference, loss_of, step, number_format, batches)
        except torch.OutOfMemoryError:
            batches = halves(reference, batches)
        torch.cuda.empty_cache()
    exact, allowed = explained
    if not all(map(math.isfinite, allowed.values())):
        raise NotComparableError("its reference is not finite under random rounding")
    # A mean over all labels, or over those that a token predicts: both are the training's choice.
    found = min(
        (
            _tensor_checks(exact, step, allowed, share)
            for share in (1.0, predicted_share(step.micro_batches))
        ),
        key=lambda checks: max(map(_badness, checks)),
    )
    worst = max(found, key=_badness)
    return GradientCheck(
        tensors=len(found),
        unresolved=sum(each.bound >= 1 for each in found),
        worst=worst.name,
        error=worst.error,
        bound=worst.bound,
        cosine=worst.cosine,
        number_format=number_format,
        typical=statistics.median(each.error for each in found),
    )


def _explained(
    reference: torch.nn.Module,
    loss_of: LossOf,
    step: CapturedStep,
    number_format: str,
    batches: Sequence[Mapping[str, Any]],
) -> tuple[Tensors, dict[str, float]]:
    """The reference's gradients, and the norm of the difference that rounding explains in each."""
    device = next(reference.parameters()).device
    weights = {name: own.to(device) for name, own in step.weights.items()}
    restore(reference, weights)
    exact = gradients(reference, loss_of, batches)
    widest = max(size for own in exact.values() for size in own.shape or (1,))
    inputs = (own for batch in step.micro_batches for own in batch.values())
    tokens = max(own.numel() for own in inputs if isinstance(own, torch.Tensor))
    size = amplitude(number_format, max(widest, tokens))
    deviations: dict[str, list[torch.Tensor]] = {name: [] for name in exact}
    for seed in range(DRAWS):
        with RandomRounding(size, seed, reference.parameters()) as rounding:
            restore(reference, weights, rounding.rounded)
            drawn = gradients(reference, loss_of, batches)
        for name, own in drawn.items():
            # 16 bits are enough for a difference whose size alone matters.
            deviations[name].append((own - exact[name]).to(torch.bfloat16))
    return exact, bounds(exact, deviations)


def _tensor_checks(
    exact: Tensors, step: CapturedStep, allowed: Mapping[str, float], share: float
) -> list[_TensorCheck]:
    checks = []
    for name, right in exact.items():
        own = step.gradients.get(name, torch.zeros(())).to(right).expand_as(right)
        checks.append(_tensor_check(name, own, right * share, allowed[name]))
    return checks


class _TensorCheck(NamedTuple):
    name: str
    error: float
    bound: float
    cosine: float


def _tensor_check(
    name: str, own: torch.Tensor, right: torch.Tensor, allowed: float
) -> _TensorCheck:
    difference = float((own - right).norm())
    # A gradient of zero has no relative error. The smallest number keeps the ratios in order.
    tiny = torch.finfo(torch.float32).tiny
    scale = max(float(right.norm()), tiny)
    product = float((own / scale * right).sum()) / max(float(own.norm()), tiny)
    return _TensorCheck(
        name=name,
        # Not a number is the largest error of all.
        error=difference / scale if math.isfinite(difference) else math.inf,
        bound=allowed / scale,
        cosine=product if math.isfinite(product) else 0.0,
    )


def _badness(own: _TensorCheck) -> tuple[bool, bool, float]:
    """Sort key: errors beyond their bound, then tensors that are not zero but for rounding."""
    return own.error > own.bound, own.bound < 1, own.error / own.bound if own.bound else 0.0


def _obstacle(trained: Trained, spec: TrialSpec) -> str:
    if hasattr(trained.model, "zero_optimization_stage"):
        return "DeepSpeed keeps the gradients in buffers of its own"
    if spec.world_size > 1:
        return "each rank has the gradients of its own part of the step"
    if trained.loss_of is None or "preferences" in spec.settings.hooks:
        return "its loss compares two models"
    if spec.settings.training_arguments.get("neftune_noise_alpha"):
        return "NEFTune adds random noise to every step"
    return ""


def _fill_zeros(parameters: Mapping[str, torch.nn.Parameter], seed: int) -> None:
    """Give matrices of zeros random values: adapters begin so, and let no other gradient pass."""
    for parameter in parameters.values():
        if parameter.requires_grad and parameter.dim() == 2 and not parameter.any():
            generator = torch.Generator().manual_seed(seed)
            # transformers' usual ``initializer_range``.
            values = torch.randn(parameter.shape, generator=generator) * 0.02
            with torch.no_grad():
                parameter.copy_(values)


def _number_format(trained: Trained, model: torch.nn.Module) -> str:
    """The coarsest number format that the trial computes in."""
    accelerator = trained.accelerator
    dtypes: set[Any] = {own.dtype for own in model.parameters() if own.is_floating_point()}
    # Layers in 4 bits compute in a format of their own.
    dtypes |= {getattr(own, "compute_dtype", None) for own in model.modules()}
    names = {str(own).removeprefix("torch.") for own in dtypes if own is not None}
    if accelerator.native_amp and accelerator.mixed_precision in ("bf16", "fp16"):
        names.add({"bf16": "bfloat16", "fp16": "float16"}[accelerator.mixed_precision])
    if torch.cuda.is_available() and torch.backends.cuda.matmul.fp32_precision == "tf32":
        names.add("tf32")
    return max(names, key=unit_roundoff)
