"""Loop axis: who runs the training loop."""

from jobs.techniques.base import Axis, Variant

LOOP = Axis(
    name="loop",
    doc="who runs the training loop",
    default="trainer",
    variants={
        "trainer": Variant(
            doc="transformers.Trainer", hooks={"loop": ("jobs.loops.trainer:train", {})}
        ),
        "trainer_async": Variant(
            doc="transformers.Trainer that never waits for the GPU in a step: no loss is looked at for NaN and batches "
            "are copied without blocking, so that the next step is prepared while this one runs",
            training_arguments={
                "logging_nan_inf_filter": False,
                "accelerator_config": {"non_blocking": True},
            },
            hooks={"loop": ("jobs.loops.trainer:train", {})},
        ),
        "accelerate": Variant(
            doc="a plain loop through accelerate.Accelerator, the guide's last section",
            hooks={"loop": ("jobs.loops.accelerate:train", {})},
            tags=("accelerate",),
        ),
    },
)
