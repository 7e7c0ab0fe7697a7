"""Loop axis: the code that runs the training."""

from jobs.spec import Hook
from jobs.techniques.hooks import hooks_of
from jobs.techniques.variant import Axis, Variant, add

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
            "learning-rate schedule and logging; rows come in another order than the Trainer's",
            hooks={"loop": Hook("accelerate_loop")},
            traits=("accelerate",),
        ),
    },
)
add(LOOP)
hooks_of("jobs.loops.trainer", {"trainer_loop": "train"})
hooks_of("jobs.loops.accelerate", {"accelerate_loop": "train"})
