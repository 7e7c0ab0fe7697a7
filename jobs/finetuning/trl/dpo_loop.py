"""The loop of TRL's ``DPOTrainer``, measured in the same way as the Trainer's loop."""

import time
from dataclasses import replace
from typing import Any

import transformers

from jobs.finetuning.trl.sft_loop import trl_measured, trl_trainer
from jobs.finetuning.trl.sft_rows import counting
from jobs.finetuning.user_code.objects import UserCodeError
from jobs.loops.contract import Setup, Trained
from jobs.loops.trainer import Metered
from jobs.trial.weight_formats import storage_bytes


def train(setup: Setup, *, trainer: str) -> Trained:
    """Train with ``DPOTrainer`` until the meter stops it. Raises UnsupportedError with TRL's reason
    for a combination that TRL refuses."""
    import datasets

    # Else TRL would take the reference's log-probabilities from an earlier trial, even from one in
    # another precision, and would not compute them.
    datasets.disable_caching()
    live: Any = dpo_trainer(setup)
    live.data_collator = counting(live.data_collator)
    trained = trl_measured(live, setup)
    columns = {**trained.columns, **_columns(live)}
    return replace(trained, columns=columns, reference_model=live.ref_model)


def dpo_trainer(setup: Setup) -> Metered:
    from trl import DPOTrainer

    if setup.user is not None and setup.user.entry is not None:
        raise UserCodeError(
            "a function that makes the Trainer cannot be used here, because the pairs are prepared "
            "already: name a subclass of DPOTrainer in own_code.trainer instead"
        )
    attributes: dict[str, Any] = {
        # The rows are prepared already.
        "_prepare_dataset": lambda trainer, dataset, *_: dataset,
        "_precompute_ref_logps": _timed_reference,
    }
    is_computed_before = setup.arguments.precompute_ref_log_probs
    if is_computed_before:
        # Rows that are evaluated have the reference's log-probabilities already.
        attributes["evaluate"] = transformers.Trainer.evaluate
    reference = None
    # TRL can switch an adapter off, and the rest of the model is then the reference.
    if not is_computed_before and not hasattr(setup.model, "peft_config"):
        reference = reference_copy(setup.model)
    trainer = trl_trainer(setup, DPOTrainer, {"ref_model": reference}, **attributes)
    drop_copied_adapter(setup.model)
    return trainer


def _columns(trainer: Any) -> dict[str, Any]:
    """What the Trainer compared with and computed, read back after the training."""
    model = trainer.ref_model
    held = () if model is None else (*model.parameters(), *model.buffers())
    reference = "adapter off" if model is None else "model"
    if trainer.precompute_ref_logps:
        reference = "computed before"
    values = {
        "reference": reference,
        "reference_model_bytes": storage_bytes(held),
        "preference_loss": ", ".join(trainer.loss_types),
        "preference_beta": float(trainer.beta),
    }
    if hasattr(trainer, "reference_seconds"):
        values["reference_seconds"] = trainer.reference_seconds
    return values


def _timed_reference(trainer: Any, *args: Any, **kwargs: Any) -> Any:
    # The reference is the model without its new adapter here, as it is in training.
    drop_copied_adapter(trainer.model)
    begin = time.perf_counter()
    dataset = super(type(trainer), trainer)._precompute_ref_logps(*args, **kwargs)
    trainer.reference_seconds = time.perf_counter() - begin
    return dataset


def reference_copy(model: Any) -> Any:
    """A copy of the model that no optimizer changes, on the same device. TRL loads the checkpoint a
    second time and does not freeze it, so autocast keeps 16-bit copies in the forward pass. A
    frozen copy would need less memory than TRL's training."""
    import copy

    return copy.deepcopy(model).eval()


def drop_copied_adapter(model: Any) -> None:
    """Remove the copy of a new adapter, so that the reference is the model without its adapter. TRL
    copies an adapter that it did not create, because it may have been trained before."""
    if "ref" in getattr(model, "peft_config", {}):
        model.delete_adapter("ref")
