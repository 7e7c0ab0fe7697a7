"""The loops as hooks of the loop axis. torch is imported only when a hook is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jobs.techniques.hooks import hook

if TYPE_CHECKING:
    from jobs.loops.base import Setup, Trained


@hook("trainer_loop")
def trainer_loop(setup: Setup) -> Trained:
    """Train with ``transformers.Trainer``."""
    from jobs.loops.trainer import train

    return train(setup)


@hook("accelerate_loop")
def accelerate_loop(setup: Setup) -> Trained:
    """Train with a plain loop through ``accelerate.Accelerator``."""
    from jobs.loops.accelerate import train

    return train(setup)


@hook("trl_sft_rows")
def trl_sft_rows(rows: Any, *, batching: str, parameters: Mapping[str, Any]) -> tuple[Any, Any]:
    """Rows that TRL has prepared, and the settings of its collator (``jobs.loops.trl.rows``)."""
    from jobs.loops.trl.rows import prepared

    return prepared(rows, batching=batching, parameters=parameters)


@hook("trl_sft_arguments")
def trl_sft_arguments(
    fields: Mapping[str, Any], *, batching: str, parameters: Mapping[str, Any]
) -> Any:
    """The ``SFTConfig`` of a trial whose rows have been prepared."""
    from jobs.loops.trl.config import sft_config

    return sft_config(fields, batching=batching, parameters=parameters)


@hook("trl_sft_loop")
def trl_sft_loop(setup: Setup) -> Trained:
    """Train with TRL's ``SFTTrainer``."""
    from jobs.loops.trl.sft import train

    return train(setup)


@hook("trl_preference_rows")
def trl_preference_rows(
    rows: Any, *, trainer: str, parameters: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Pairs of answers as token ids, and the settings of TRL's collator."""
    from jobs.loops.trl.preference_rows import prepared_pairs

    return prepared_pairs(rows, trainer=trainer, parameters=parameters)


@hook("trl_preference_arguments")
def trl_preference_arguments(
    fields: Mapping[str, Any], *, batching: str, trainer: str, parameters: Mapping[str, Any]
) -> Any:
    """The configuration of a preference trainer whose rows have been prepared."""
    from jobs.loops.trl.config import preference_config

    return preference_config(fields, trainer=trainer, parameters=parameters)


@hook("trl_preference_loop")
def trl_preference_loop(setup: Setup, *, trainer: str) -> Trained:
    """Train with one of TRL's preference trainers."""
    from jobs.loops.trl.preference import train

    return train(setup, trainer=trainer)
