"""What the Trainer adds to a model's own pass: noise, a count of labels, and another loss."""

from types import SimpleNamespace
from typing import Any

import torch
import transformers
from transformers.integrations.neftune import activate_neftune

from jobs.spec import TrialSpec
from orchestrator.prediction.tracing.cpu_arguments import accepts_loss_arguments
from orchestrator.prediction.tracing.fakes.fake_ranks import Forward
from orchestrator.prediction.tracing.fakes.fake_update import runs_trainer
from orchestrator.prediction.unsupported import runs_trl


def prepare(model: Any, spec: TrialSpec, arguments: Any) -> None:
    """Change the model as the Trainer does on being made, and as its training begins."""
    if not runs_trainer(spec):
        return
    if hasattr(arguments, "use_cache"):
        model.config.use_cache = arguments.use_cache
    if arguments.neftune_noise_alpha is not None:
        activate_neftune(model, arguments.neftune_noise_alpha)


def counts(model: Any, spec: TrialSpec) -> dict[str, Any]:
    """The count of labels, which the Trainer gives to models that take it."""
    if runs_trainer(spec) and not runs_trl(spec) and accepts_loss_arguments(model):
        return {"num_items_in_batch": torch.empty((), dtype=torch.int64)}
    return {}


def with_its_loss(forward: Forward, model: Any, spec: TrialSpec, arguments: Any) -> Forward:
    """``forward`` with the Trainer's loss in place of the model's, if it has one of its own."""
    if not (runs_trainer(spec) and arguments.label_smoothing_factor):
        return forward

    def run(num_items_in_batch: torch.Tensor | None = None, **inputs: torch.Tensor) -> Any:
        # One for each pass: the libraries share its state with the newest arguments.
        trainer = transformers.Trainer(model=model, args=arguments)
        # What it is given as a model is a function, or an engine.
        trainer.accelerator.unwrap_model = lambda _: model
        loss, outputs = trainer.compute_loss(forward, inputs, True, num_items_in_batch)
        return SimpleNamespace(loss=loss, logits=outputs.logits)

    return run
