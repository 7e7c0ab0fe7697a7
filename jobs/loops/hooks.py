"""The loops as hooks of the loop axis; torch is imported when one is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
