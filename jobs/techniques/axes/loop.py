"""Loop axis: the code that runs the training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.spec import Hook
from jobs.techniques.base import Axis, Variant
from jobs.techniques.hooks import hook

if TYPE_CHECKING:
    from jobs.loops.base import Setup, Trained

LOOP = Axis(
    name="loop",
    doc="The training loop",
    default="trainer",
    variants={
        "trainer": Variant(doc="transformers.Trainer", hooks={"loop": Hook("trainer_loop")}),
        "trainer_async": Variant(
            doc="transformers.Trainer without synchronisation in a step: no NaN check of the loss, "
            "non-blocking copies; the host prepares the next step while the GPU works",
            training_arguments={
                "logging_nan_inf_filter": False,
                "accelerator_config": {"non_blocking": True},
            },
            hooks={"loop": Hook("trainer_loop")},
        ),
        "accelerate": Variant(
            doc="A plain PyTorch loop through accelerate.Accelerator, without clipping, "
            "learning-rate schedule and logging",
            hooks={"loop": Hook("accelerate_loop")},
            traits=("accelerate",),
        ),
    },
)


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
