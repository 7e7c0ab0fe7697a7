"""Offload axis: DeepSpeed ZeRO stages on one GPU, with states and parameters on host or NVMe."""

from collections.abc import Mapping
from typing import Any

from jobs.techniques.variant import Axis, Variant, add

ONE_GPU_ENGINE = "one_gpu_engine"
"""Trait of DeepSpeed's engine where this axis sets it up."""
_Device = Mapping[str, Any]
_CPU: _Device = {"device": "cpu", "pin_memory": True}
_NVME: _Device = {"device": "nvme", "nvme_path": "{nvme}", "pin_memory": True}
"""``jobs.loops.deepspeed`` fills in ``{nvme}``."""
_COMMON = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "zero_allow_untested_optimizer": True,
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto"},
}
_ADAMW = {
    "type": "AdamW",
    "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"},
}
"""The section that DeepSpeed's CPU Adam needs. An offloaded optimizer is always this one."""


def deepspeed_row(doc: str, config: Mapping[str, Any]) -> Variant:
    """The row of a DeepSpeed configuration."""
    zero = config.get("zero_optimization") or {}
    stage = zero.get("stage", 0)
    devices = [(zero.get(f"offload_{part}") or {}).get("device") for part in ("optimizer", "param")]
    builds: list[str] = []
    traits = ["deepspeed", ONE_GPU_ENGINE]
    # With its states, DeepSpeed also moves the optimizer's update to the host, and runs it there.
    if devices[0] in ("cpu", "nvme"):
        builds.append("cpu_adam")
        traits.append("offloaded_optimizer")
    if "nvme" in devices:
        builds.append("async_io")
    if stage == 3:
        traits.append("zero3")
    if stage in (1, 2, 3):
        traits.append("zero")
    return Variant(
        doc=doc,
        deepspeed=config,
        requires=("package:deepspeed", *(f"deepspeed_op:{op}" for op in builds)),
        builds=tuple(builds),
        numerical_effect="rounding",
        traits=tuple(traits),
    )


def _zero(
    stage: int, doc: str, *, optimizer: _Device | None = None, parameters: _Device | None = None
) -> Variant:
    """``optimizer`` and ``parameters`` are the devices to offload to."""
    section: dict[str, Any] = {"stage": stage}
    config: dict[str, Any] = {**_COMMON, "zero_optimization": section}
    if optimizer is not None:
        section["offload_optimizer"] = optimizer
        config["optimizer"] = _ADAMW
    if parameters is not None:
        section["offload_param"] = parameters
    return deepspeed_row(doc, config)


OFFLOAD = Axis(
    name="offload",
    doc="DeepSpeed ZeRO stage, and the states that are kept outside the GPU",
    default="none",
    variants={
        "none": Variant(doc="No DeepSpeed: everything on the GPU"),
        "zero0": _zero(0, "DeepSpeed's engine without sharding"),
        "zero1": _zero(
            1, "ZeRO-1: shards optimizer states over the GPUs; on one GPU it saves nothing"
        ),
        "zero2": _zero(2, "ZeRO-2: shards gradients too; on one GPU it saves nothing"),
        "zero3": _zero(3, "ZeRO-3: shards parameters too; on one GPU it saves little"),
        # ZeRO-Offload: states and parameters on the host need no GPU memory (arXiv 2101.06840).
        **{
            f"zero{stage}_cpu_optimizer": _zero(
                stage,
                f"ZeRO-{stage} with optimizer states and update on the host: saves GPU memory, "
                "costs transfers and CPU time",
                optimizer=_CPU,
            )
            for stage in (1, 2, 3)
        },
        "zero3_cpu_parameters": _zero(
            3,
            "ZeRO-3 with parameters in host memory: saves the weights' GPU memory, costs transfers "
            "in every pass",
            parameters=_CPU,
        ),
        "zero3_cpu_both": _zero(
            3,
            "ZeRO-3 with optimizer and parameters on the host: needs the least GPU memory of the "
            "CPU variants, costs the most transfers",
            optimizer=_CPU,
            parameters=_CPU,
        ),
        # ZeRO-Infinity does the same with NVMe disks (arXiv 2104.07857).
        "zero3_nvme_optimizer": _zero(
            3,
            "ZeRO-3 with optimizer states on NVMe: saves GPU and host memory, costs disk transfers",
            optimizer=_NVME,
        ),
        "zero3_nvme_both": _zero(
            3,
            "ZeRO-3 with optimizer states and parameters on NVMe: saves the most memory, costs the "
            "most time",
            optimizer=_NVME,
            parameters=_NVME,
        ),
    },
)
add(OFFLOAD)
