"""A step's clipping and optimizer, made as the trial's loop makes them."""

from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
import transformers

from jobs.loops import accelerate as accelerate_loop
from jobs.spec import TrialSpec
from jobs.techniques.hooks import bound
from orchestrator.prediction.streams.affine_stream import Stream
from orchestrator.prediction.tracing.fakes.fake_libraries import forget_bitsandbytes_overrides
from orchestrator.units import memory


@dataclass(frozen=True, kw_only=True, slots=True)
class Updates:
    first: Stream
    """The step that creates the states."""
    later: Stream
    paged: tuple[int, ...]
    """Bytes of each state in managed memory."""

    @property
    def notes(self) -> tuple[str, ...]:
        if not self.paged:
            return ()
        states = f"paged states of {memory(sum(self.paged))}"
        return (f"optimizer: {states} move to the host if the GPU is full",)


def runs_trainer(spec: TrialSpec) -> bool:
    return spec.settings.hooks["loop"].name != "accelerate_loop"


def made_optimizer(model: Any, spec: TrialSpec, arguments: Any) -> torch.optim.Optimizer:
    forget_bitsandbytes_overrides()
    if make := bound(spec, "optimizer"):
        optimizer = make(model, arguments)
    elif runs_trainer(spec):
        optimizer = transformers.Trainer(model=model, args=arguments).create_optimizer()
    else:
        optimizer = accelerate_loop.named_optimizer(model, arguments)
    for group in optimizer.param_groups:
        # On a GPU torch.optim chooses its multi-tensor kernels itself.
        if "foreach" in group and group["foreach"] is None and not group.get("fused"):
            group["foreach"] = True
    return optimizer


def update(model: Any, spec: TrialSpec, arguments: Any, optimizer: torch.optim.Optimizer) -> None:
    if runs_trainer(spec) and arguments.max_grad_norm:
        trained = [p for p in model.parameters() if p.grad is not None]
        torch.nn.utils.clip_grad_norm_(trained, arguments.max_grad_norm, foreach=True)
    take_step(optimizer)


def take_step(optimizer: torch.optim.Optimizer) -> None:
    """torchao compiles the update of each parameter: its states are tensors, and all between them
    is fused."""
    with patch.object(torch, "compile", lambda *_, **__: lambda *_: None):
        optimizer.step()
