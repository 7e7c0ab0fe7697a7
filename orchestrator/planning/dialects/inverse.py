"""The values of our axes -> facts: the way back of ``axes.py``."""

from collections.abc import Mapping
from typing import Any

from jobs.spec import Choice

_NO_OFFLOADING = {"offloading": None}
_LIGER = ("liger.rope", "liger.rms_norm", "liger.mlp")
_SINGLE: Mapping[str, str] = {
    "micro_batch": "micro_batch",
    "accumulation": "accumulation",
    "optimizer": "optimizer",
    "attention": "attention",
    "loss": "loss",
}
"""Axis -> the fact that has the same values."""
_FACTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "precision": {
        "fp32": {"bf16": False, "fp16": False, "tf32": False},
        "tf32": {"bf16": False, "fp16": False, "tf32": True},
        "fp16": {"bf16": False, "fp16": True},
        "bf16": {"bf16": True, "tf32": False},
        "bf16_tf32": {"bf16": True, "tf32": True},
        "bf16_weights": {"bf16": True, "tf32": False, "weights": "16"},
        "bf16_weights_tf32": {"bf16": True, "tf32": True, "weights": "16"},
    },
    "activations": {
        "keep": {"checkpointing": False, **_NO_OFFLOADING},
        "checkpoint": {"checkpointing": True, "reentrant": False, **_NO_OFFLOADING},
        "checkpoint_reentrant": {"checkpointing": True, "reentrant": True, **_NO_OFFLOADING},
        "checkpoint_offload": {"offloading": "checkpoint_offload"},
        "offload": {"checkpointing": False, "offloading": "offload"},
        "checkpoint_offload_streams": {"checkpointing": True, "offloading": "offload"},
    },
    "kernels": {
        "none": dict.fromkeys(_LIGER, False),
        "liger": {**dict.fromkeys(_LIGER, True), "liger.layer_norm": True},
        "hub": {"kernels": "hub"},
    },
    "compile": {
        "none": {"compile": False},
        "inductor": {"compile": True},
        "inductor_reduce_overhead": {"compile": True, "compile.mode": "reduce-overhead"},
        "inductor_max_autotune": {
            "compile": True,
            "compile.mode": "max-autotune-no-cudagraphs",
        },
    },
    "dataloader": {
        "main_process": {"workers": 0},
        "workers_1": {"workers": 1},
        "workers_2": {"workers": 2},
        "workers_4": {"workers": 4},
        "unpinned": {"pin_memory": False},
    },
}


def facts_of_value(axis: str, value: Choice) -> Mapping[str, Any]:
    """The facts that make this value of an axis; none if no dialect could state them."""
    if axis in _SINGLE:
        return {_SINGLE[axis]: value}
    return _FACTS.get(axis, {}).get(str(value), {})
