"""Loop axis: who runs the training loop."""

from jobs.techniques.base import Axis, Variant

LOOP = Axis(
    name="loop",
    doc="who runs the training loop",
    default="trainer",
    variants={
        "trainer": Variant(doc="transformers.Trainer", hooks={"loop": ("jobs.loops.trainer:train", {})}),
        "accelerate": Variant(
            doc="a plain loop through accelerate.Accelerator, the guide's last section",
            hooks={"loop": ("jobs.loops.accelerate:train", {})},
            tags=("accelerate",),
        ),
    },
)
