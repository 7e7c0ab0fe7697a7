"""The loop of TRL's ``SFTTrainer``, measured in the same way as the Trainer's loop."""

from dataclasses import replace
from typing import Any

from jobs.finetuning.trl.parameters import refusal
from jobs.finetuning.trl.sft_rows import PreparedRows, counting
from jobs.finetuning.user_code.objects import UserCodeError, UserObjects
from jobs.loops.accumulated_loss import LossScale
from jobs.loops.contract import Setup, Trained
from jobs.loops.trainer import Metered, measured


def train(setup: Setup) -> Trained:
    """Train with ``SFTTrainer`` until the meter stops it. Raises UnsupportedError with TRL's reason
    for a combination that TRL refuses."""
    trainer = sft_trainer(setup)
    rows: Any = setup.collator
    if rows.flattens_rows:
        collate = trainer.data_collator
        trainer.data_collator = counting(collate, in_blocks=rows.samples_of_rows is not None)
    return trl_measured(trainer, setup)


def trl_measured(trainer: Metered, setup: Setup) -> Trained:
    """``measured``, with the share of the rows that TRL left out."""
    rows: Any = setup.collator
    trained = measured(trainer, setup, LossScale.as_declared(trainer))
    return replace(trained, columns={"rows_left_out_share": rows.left_out})


def sft_trainer(setup: Setup) -> Metered:
    from trl import SFTTrainer

    # TRL computes the plain loss with a patched model, and a reference model is not patched.
    is_plain = setup.arguments.loss_type == "nll" and not setup.arguments.label_smoothing_factor
    return trl_trainer(setup, SFTTrainer, **({"loss_of": _loss_of} if is_plain else {}))


def _loss_of(trainer: Metered, model: Any, inputs: Any) -> Any:
    return model(**inputs).loss


def trl_trainer(setup: Setup, kind: type, parts: Any = None, **attributes: Any) -> Metered:
    """A Trainer of TRL's class ``kind`` or the user's subclass of it, for prepared rows. ``parts``
    are further arguments of the class, and ``attributes`` those of the metered subclass. Raises
    UnsupportedError with TRL's reason for a combination that TRL refuses."""
    # In place of a collator, the settings for TRL's own.
    rows: Any = setup.collator
    assert isinstance(rows, PreparedRows)
    arguments = setup.arguments
    arguments.pad_to_multiple_of = arguments.pad_to_multiple_of or rows.width
    _leave_router_loss_to_the_model(arguments, setup.model)
    user = setup.user or UserObjects()
    given = {
        "model": setup.model,
        **(parts or {}),
        "args": arguments,
        "train_dataset": setup.dataset,
        "data_collator": user.collator_for(rows.tokenizer),
        "processing_class": rows.tokenizer,
        "optimizers": (setup.optimizer, None),
    }
    try:
        # TRL sends telemetry for each Trainer. A trial must not send anything.
        return user.trainer_of(given, kind, _send_telemetry=lambda trainer: None, **attributes)
    except UserCodeError:
        raise
    except (NotImplementedError, ValueError) as error:
        raise refusal("this", error) from error


def _leave_router_loss_to_the_model(arguments: Any, model: Any) -> None:
    """Add the load-balancing loss of experts only if the model's configuration asks for it. TRL
    would add it to every mixture of experts, while the Trainer leaves it to the model."""
    is_asked = getattr(model.config.get_text_config(), "output_router_logits", False)
    if arguments.router_aux_loss_coef is None and not is_asked:
        arguments.router_aux_loss_coef = 0.0
