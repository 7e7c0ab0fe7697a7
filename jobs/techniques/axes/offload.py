"""Offload axis: DeepSpeed ZeRO stages on one GPU, with states and parameters on the host or on NVMe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.techniques.base import Axis, Variant

_CPU = {"device": "cpu", "pin_memory": True}
_NVME = {
    "device": "nvme",
    "nvme_path": "{nvme}",
    "pin_memory": True,
}  # {nvme}: jobs.loops.deepspeed fills it in
_COMMON = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "zero_allow_untested_optimizer": True,
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto"},
}
# An offloaded optimizer is DeepSpeed's own CPU Adam, which needs its section in the file.
_ADAMW = {
    "type": "AdamW",
    "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"},
}


def _zero(
    stage: int,
    doc: str,
    *,
    optimizer: Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Variant:
    section: dict[str, Any] = {"stage": stage}
    config: dict[str, Any] = {**_COMMON, "zero_optimization": section}
    offloaded = tuple(part for part in (optimizer, parameters) if part)
    builds: tuple[str, ...] = ()
    if optimizer is not None:
        section["offload_optimizer"] = optimizer
        config["optimizer"] = _ADAMW
        builds += ("cpu_adam",)
    if parameters is not None:
        section["offload_param"] = parameters
    nvme = _NVME in offloaded
    if nvme:
        builds += ("async_io",)
    return Variant(
        doc=doc,
        deepspeed=config,
        requires=("package:deepspeed", *(f"deepspeed_op:{op}" for op in builds)),
        builds=builds,
        uses_host=bool(offloaded),
        numerical_effect="rounding",
        traits=("deepspeed",)
        + (("offloaded_optimizer",) if optimizer else ())
        + (("zero3",) if stage == 3 else ())
        + (("zero",) if stage else ()),
    )


OFFLOAD = Axis(
    name="offload",
    doc="DeepSpeed ZeRO stage, and what lives outside the GPU",
    default="none",
    variants={
        "none": Variant(doc="no DeepSpeed: everything on the GPU"),
        "zero0": _zero(0, "DeepSpeed's engine without sharding"),
        "zero1": _zero(1, "ZeRO-1: optimizer states sharded (over one GPU: not at all)"),
        "zero2": _zero(2, "ZeRO-2: gradients sharded too"),
        "zero3": _zero(3, "ZeRO-3: parameters sharded too"),
        "zero1_cpu_optimizer": _zero(1, "ZeRO-1, optimizer on the host's cores", optimizer=_CPU),
        "zero2_cpu_optimizer": _zero(2, "ZeRO-2, optimizer on the host's cores", optimizer=_CPU),
        "zero3_cpu_optimizer": _zero(3, "ZeRO-3, optimizer on the host's cores", optimizer=_CPU),
        "zero3_cpu_parameters": _zero(3, "ZeRO-3, parameters in host memory", parameters=_CPU),
        "zero3_cpu_both": _zero(
            3, "ZeRO-3, optimizer and parameters on the host", optimizer=_CPU, parameters=_CPU
        ),
        "zero3_nvme_optimizer": _zero(3, "ZeRO-3, optimizer states on NVMe", optimizer=_NVME),
        "zero3_nvme_both": _zero(
            3, "ZeRO-3, optimizer states and parameters on NVMe", optimizer=_NVME, parameters=_NVME
        ),
    },
)
