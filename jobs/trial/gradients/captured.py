"""The gradients of one optimizer step, with the weights and samples that they belong to."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from jobs.loops.meter import Listener
from jobs.trackers.tracker import Phase

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

    values: torch.Tensor = dequantize_4bit(weight.data, state)
    return values


def _copies(tensors: Iterable[tuple[str, torch.Tensor]]) -> Tensors:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors}
