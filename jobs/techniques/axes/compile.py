"""Compile axis: ``torch.compile`` with its backends and modes."""

from collections.abc import Mapping
from typing import Any

from jobs.spec import Hook
from jobs.techniques.base import Axis, Variant
from jobs.techniques.hooks import hook

Hooks = Mapping[str, Hook]


def _compiled(
    doc: str, requires: tuple[str, ...] = (), hooks: Hooks | None = None, **arguments: Any
) -> Variant:
    return Variant(
        doc=doc,
        hooks=hooks or {},
        training_arguments={
            "torch_compile": True,
            **{f"torch_compile_{k}": v for k, v in arguments.items()},
        },
        requires=requires,
        numerical_effect="rounding",
        traits=("compiled",),
    )


COMPILE = Axis(
    name="compile",
    doc="torch.compile backend and mode",
    default="none",
    variants={
        "none": Variant(doc="eager mode"),
        "inductor": _compiled("TorchInductor", backend="inductor"),
        "inductor_reduce_overhead": _compiled(
            "TorchInductor with CUDA graphs", ("cuda",), backend="inductor", mode="reduce-overhead"
        ),
        "inductor_tuned": _compiled(
            "TorchInductor, the tiling of its fused element-wise and normalization kernels found by timing",
            ("cuda",),
            hooks={"compiler": Hook("tuned_inductor")},
            backend="inductor",
        ),
        "inductor_max_autotune": _compiled(
            "TorchInductor, kernels chosen by timing",
            ("cuda",),
            backend="inductor",
            mode="max-autotune-no-cudagraphs",
        ),
        "aot_eager": _compiled(
            "AOTAutograd without a compiler (for debugging)", backend="aot_eager"
        ),
        "eager": _compiled("TorchDynamo only (for debugging)", backend="eager"),
        "cudagraphs": _compiled("AOTAutograd with CUDA graphs", ("cuda",), backend="cudagraphs"),
    },
)


@hook("tuned_inductor")
def tuned_inductor() -> None:
    """Have TorchInductor time more tilings of each kernel that it writes; matrix products stay cuBLAS's."""
    from torch._inductor import config

    config.max_autotune_pointwise = True
    config.coordinate_descent_tuning = True
