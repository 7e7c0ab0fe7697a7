"""Compile axis: ``torch.compile`` with its backends and modes."""

from collections.abc import Mapping
from typing import Any

from jobs.spec import Hook
from jobs.techniques.base import Axis, Variant
from jobs.techniques.hooks import hook


def _compiled(
    doc: str,
    requires: tuple[str, ...] = (),
    hooks: Mapping[str, Hook] | None = None,
    **options: Any,
) -> Variant:
    """``options`` are ``TrainingArguments`` without their prefix ``torch_compile_``."""
    arguments = {f"torch_compile_{name}": value for name, value in options.items()}
    return Variant(
        doc=doc,
        hooks=hooks or {},
        training_arguments={"torch_compile": True, **arguments},
        requires=requires,
        numerical_effect="rounding",
        traits=("compiled",),
    )


COMPILE = Axis(
    name="compile",
    doc="Backend and mode of torch.compile",
    default="none",
    variants={
        "none": Variant(doc="No compilation: eager mode"),
        "inductor": _compiled(
            "TorchInductor: fuses element-wise operators; saves time and activations, costs a "
            "slow first step",
            backend="inductor",
        ),
        "inductor_reduce_overhead": _compiled(
            "TorchInductor with CUDA graphs: saves launch time, costs memory",
            ("cuda",),
            backend="inductor",
            mode="reduce-overhead",
        ),
        "inductor_tuned": _compiled(
            "TorchInductor that times several tilings of its fused kernels; costs a slower first "
            "step",
            ("cuda",),
            hooks={"compiler": Hook("tuned_inductor")},
            backend="inductor",
        ),
        "inductor_max_autotune": _compiled(
            "TorchInductor that times several kernels for each operation, matrix products "
            "included; costs the slowest first step",
            ("cuda",),
            backend="inductor",
            mode="max-autotune-no-cudagraphs",
        ),
        # The two debugging backends generate no code: they show what tracing alone changes.
        "aot_eager": _compiled(
            "AOTAutograd without code generation, for debugging", backend="aot_eager"
        ),
        "eager": _compiled("TorchDynamo alone, for debugging", backend="eager"),
        "cudagraphs": _compiled(
            "AOTAutograd with CUDA graphs: saves launch time", ("cuda",), backend="cudagraphs"
        ),
    },
)


@hook("tuned_inductor")
def tuned_inductor() -> None:
    """Have TorchInductor time more tilings of each kernel that it writes.

    Matrix products stay with cuBLAS.
    """
    from torch._inductor import config

    config.max_autotune_pointwise = True
    config.coordinate_descent_tuning = True
