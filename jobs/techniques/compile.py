"""Compile axis: ``torch.compile`` with its backends and modes."""

from typing import Any

from jobs.techniques.base import Axis, Variant


def _compiled(doc: str, requires: tuple[str, ...] = (), **arguments: Any) -> Variant:
    return Variant(
        doc=doc,
        training_arguments={"torch_compile": True, **{f"torch_compile_{k}": v for k, v in arguments.items()}},
        requires=requires,
        effect="rounding",
        tags=("compiled",),
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
        "inductor_max_autotune": _compiled(
            "TorchInductor, kernels chosen by timing", ("cuda",), backend="inductor", mode="max-autotune-no-cudagraphs"
        ),
        "aot_eager": _compiled("AOTAutograd without a compiler (for debugging)", backend="aot_eager"),
        "eager": _compiled("TorchDynamo only (for debugging)", backend="eager"),
        "cudagraphs": _compiled("AOTAutograd with CUDA graphs", ("cuda",), backend="cudagraphs"),
    },
)
