"""The loop of TRL's ``SFTTrainer``, measured in the same way as the Trainer's loop."""

from __future__ import annotations

from typing import Any

from jobs.errors import UnsupportedError
from jobs.loops.accumulated_loss import LossScale
from jobs.loops.base import Setup, Trained
from jobs.loops.trainer import Metered, measured, own_trainer
from jobs.loops.trl.parameters import in_one_line
from jobs.loops.trl.rows import Counting, PreparedRows
from jobs.own_code.objects import OwnCodeError, OwnObjects, collator_of


def train(setup: Setup) -> Trained:
    """Train with ``SFTTrainer`` until the meter stops it.

    Raises UnsupportedError with TRL's reason for a combination that TRL refuses.
    """
    from trl import SFTTrainer

    # In place of a collator, the settings for TRL's own.
    rows: Any = setup.collator
    assert isinstance(rows, PreparedRows)
    arguments = setup.arguments
    arguments.pad_to_multiple_of = arguments.pad_to_multiple_of or rows.width
    leave_router_loss_to_the_model(arguments, setup.model)
    own = setup.own or OwnObjects()
    own_collator = None
    if own.collator is not None:
        own_collator = collator_of(own.collator, rows.tokenizer)
    try:
        # TRL sends telemetry for each Trainer. A trial must not send anything.
        trainer = own_trainer(
            own,
            {
                "model": setup.model,
                "args": arguments,
                "train_dataset": setup.dataset,
                "data_collator": own_collator,
                "processing_class": rows.tokenizer,
                "optimizers": (setup.optimizer, None),
            },
            SFTTrainer,
            _send_telemetry=send_nothing,
        )
    except OwnCodeError:
        raise
    except ValueError as error:
        raise UnsupportedError("trl", f"TRL refuses this: {in_one_line(error)}") from error
    if rows.flattens_rows:
        trainer.data_collator = Counting(trainer.data_collator)
    return measured(trainer, setup, LossScale.as_declared(trainer))


def send_nothing(trainer: Metered) -> None:
    """In place of TRL's telemetry."""


def leave_router_loss_to_the_model(arguments: Any, model: Any) -> None:
    """Add the load-balancing loss of experts only if the model's configuration asks for it.

    ``SFTTrainer`` adds this loss to every mixture of experts whose configuration has a coefficient.
    The Trainer leaves it to the model, which does not add it by default.
    """
    config = model.config.get_text_config()
    if arguments.router_aux_loss_coef is None and not getattr(
        config, "output_router_logits", False
    ):
        arguments.router_aux_loss_coef = 0.0
