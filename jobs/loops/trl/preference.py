"""The loop of TRL's preference trainers, measured in the same way as the Trainer's loop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import transformers

from jobs.errors import UnsupportedError
from jobs.loops.accumulated_loss import LossScale
from jobs.loops.base import PreferenceFacts, Setup, Trained
from jobs.loops.trainer import Metered, measured, own_trainer
from jobs.loops.trl.parameters import in_one_line
from jobs.loops.trl.reference import drop_copied_adapter, reference_copy
from jobs.loops.trl.rows import Counting, PreparedRows
from jobs.loops.trl.sft import leave_router_loss_to_the_model, send_nothing
from jobs.own_code.objects import OwnCodeError, OwnObjects, collator_of
from jobs.techniques.axes.fine_tuning.preferences import PREFERENCE_TRAINERS


def train(setup: Setup, *, trainer: str) -> Trained:
    """Train with a preference trainer until the meter stops it.

    Raises UnsupportedError with TRL's reason for a combination that TRL refuses.
    """
    import trl

    rows: Any = setup.collator
    assert isinstance(rows, PreparedRows)
    arguments = setup.arguments
    arguments.pad_to_multiple_of = arguments.pad_to_multiple_of or rows.width
    leave_router_loss_to_the_model(arguments, setup.model)
    trainer_class = getattr(trl, PREFERENCE_TRAINERS[trainer].trainer)
    with _private_files():
        live = _trainer(setup, rows, trainer_class)
    drop_copied_adapter(setup.model)
    live.data_collator = Counting(live.data_collator)
    trained = measured(live, setup, LossScale.as_declared(live))
    return replace(trained, preferences=_facts(live))


def _trainer(setup: Setup, rows: PreparedRows, trainer_class: type) -> Any:
    """The Trainer with its reference model, if it needs one."""
    own = setup.own or OwnObjects()
    if own.entry is not None:
        raise OwnCodeError(
            "a function that makes the Trainer cannot be used here, because the pairs are prepared "
            "already: name a subclass of DPOTrainer in own_code.trainer instead"
        )
    own_collator = None
    if own.collator is not None:
        own_collator = collator_of(own.collator, rows.tokenizer)
    parts = {
        "model": setup.model,
        "ref_model": _reference(setup),
        "args": setup.arguments,
        "train_dataset": setup.dataset,
        "data_collator": own_collator,
        "processing_class": rows.tokenizer,
        "optimizers": (setup.optimizer, None),
    }
    attributes: dict[str, Any] = {
        "_send_telemetry": send_nothing,
        "_prepare_dataset": _as_prepared,
        "_precompute_ref_logps": _timed_reference,
    }
    if setup.arguments.precompute_ref_log_probs:
        attributes["evaluate"] = _evaluate_prepared
    try:
        return own_trainer(own, parts, trainer_class, **attributes)
    except OwnCodeError:
        raise
    except (NotImplementedError, ValueError) as error:
        raise UnsupportedError("trl", f"TRL refuses this: {in_one_line(error)}") from error


def _reference(setup: Setup) -> Any:
    """A copy of the model; None if there is an adapter that TRL can switch off.

    Also None if the log-probabilities of the reference are computed before the training.
    """
    if hasattr(setup.model, "peft_config") or setup.arguments.precompute_ref_log_probs:
        return None
    return reference_copy(setup.model)


def _facts(trainer: Any) -> PreferenceFacts:
    """What the Trainer compared with and computed, read back after the training."""
    if trainer.precompute_ref_logps:
        source = "computed before"
    elif trainer.ref_model is None:
        source = "adapter off"
    else:
        source = "model"
    return PreferenceFacts(
        reference=trainer.ref_model,
        source=source,
        losses=tuple(trainer.loss_types),
        beta=float(trainer.beta),
        reference_seconds=getattr(trainer, "reference_seconds", None),
    )


def _as_prepared(trainer: Metered, dataset: Any, *_: Any) -> Any:
    """Replaces TRL's preparation, because the rows are already prepared."""
    return dataset


def _timed_reference(trainer: Any, *args: Any, **kwargs: Any) -> Any:
    """TRL's log-probabilities of the reference, with the time that they took."""
    # The reference is the model without its new adapter here, as it is in training.
    drop_copied_adapter(trainer.model)
    begin = time.perf_counter()
    dataset = super(type(trainer), trainer)._precompute_ref_logps(*args, **kwargs)
    trainer.reference_seconds = time.perf_counter() - begin
    return dataset


def _evaluate_prepared(trainer: Any, *args: Any, **kwargs: Any) -> Any:
    """An evaluation on rows that have the reference's log-probabilities already."""
    return transformers.Trainer.evaluate(trainer, *args, **kwargs)


@contextmanager
def _private_files() -> Iterator[None]:
    """While the context lasts, ``datasets`` shares no computed columns with other trials.

    TRL would take the reference's log-probabilities from an earlier trial, even from one in another
    precision, and would not compute them.
    """
    import datasets

    was_enabled = datasets.is_caching_enabled()
    datasets.disable_caching()
    try:
        yield
    finally:
        if was_enabled:
            datasets.enable_caching()
