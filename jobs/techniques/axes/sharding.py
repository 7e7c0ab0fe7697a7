"""Sharding axis: how the GPUs of a trial share the states of the training."""

from dataclasses import replace

from jobs.techniques.axes.offload import OFFLOAD
from jobs.techniques.variant import Axis, Variant, add

SEVERAL_GPUS = "several_gpus"
"""Requirement and trait of the techniques that need ``resources.gpus_per_trial`` above one."""


def _row(doc: str, trait: str, base: Variant) -> Variant:
    return replace(
        base,
        doc=doc,
        requires=(SEVERAL_GPUS, *base.requires),
        numerical_effect="rounding",
        traits=(SEVERAL_GPUS, trait, *base.traits),
    )


def _fsdp2(doc: str, *, reshard: bool) -> Variant:
    config = {"version": 2, "reshard_after_forward": reshard}
    arguments = {"fsdp": True, "fsdp_config": config}
    return _row(doc, "fsdp2", Variant(doc="", training_arguments=arguments, requires=("fsdp2",)))


def _zero(stage: int, doc: str) -> Variant:
    # Later values win, so the stage of this axis replaces that of a value of the axis offload.
    trait = "zero_sharding" if stage == 3 else "shards_no_parameters"
    return _row(f"DeepSpeed ZeRO-{stage}: {doc}", trait, OFFLOAD.variants[f"zero{stage}"])


SHARDING = Axis(
    name="sharding",
    doc="How several GPUs share the states of a training (`resources.gpus_per_trial`)",
    default="none",
    variants={
        "none": Variant(doc="One process on one GPU, however many a trial reserves"),
        "ddp": _row(
            "DistributedDataParallel: every GPU has all states, and gradients are averaged",
            "ddp",
            Variant(doc=""),
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
    },
)
add(SHARDING)
