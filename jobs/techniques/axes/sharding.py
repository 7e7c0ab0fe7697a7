"""Sharding axis: how the GPUs of a trial share the states of the training."""

from dataclasses import replace

from jobs.techniques.axes.offload import OFFLOAD, ONE_GPU_ENGINE
from jobs.techniques.variant import Axis, Variant, add

SEVERAL_GPUS = "several_gpus"
"""Requirement and trait of the techniques that need ``resources.gpus_per_trial`` above one."""


def _shared(row: Variant) -> Variant:
    traits = (trait for trait in row.traits if trait != ONE_GPU_ENGINE)
    return replace(
        row,
        requires=(SEVERAL_GPUS, *row.requires),
        numerical_effect="rounding",
        traits=(SEVERAL_GPUS, *traits),
    )


def _fsdp2(doc: str, *, reshard: bool) -> Variant:
    config = {"version": 2, "reshard_after_forward": reshard}
    arguments = {"fsdp": True, "fsdp_config": config}
    return Variant(doc=doc, training_arguments=arguments, requires=("fsdp2",), traits=("dtensors",))


def _zero(stage: int, doc: str) -> Variant:
    return replace(OFFLOAD.variants[f"zero{stage}"], doc=f"DeepSpeed ZeRO-{stage}: {doc}")


_ROWS = {
    "ddp": Variant(
        doc="DistributedDataParallel: every GPU has all states, and gradients are averaged"
    ),
    "fsdp2_grad_op": _fsdp2(
        "FSDP2 that shards parameters between steps, and gathers each once in a step",
        reshard=False,
    ),
    "fsdp2_full": _fsdp2(
        "FSDP2 that gathers the parameters of a block only while it runs", reshard=True
    ),
    "zero1": _zero(1, "shards optimizer states"),
    "zero2": _zero(2, "shards gradients, too"),
    "zero3": _zero(3, "shards parameters, too"),
}
SHARDING = Axis(
    name="sharding",
    doc="How several GPUs share the states of a training (`resources.gpus_per_trial`)",
    default="none",
    variants={
        "none": Variant(doc="One process on one GPU, however many a trial reserves"),
        **{name: _shared(row) for name, row in _ROWS.items()},
    },
)
add(SHARDING)
