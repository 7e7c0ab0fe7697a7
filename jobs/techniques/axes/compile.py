"""Compile axis: ``torch.compile`` with its backends and modes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jobs.spec import Hook
from jobs.techniques.base import Axis, Variant
from jobs.techniques.hooks import hook

if TYPE_CHECKING:
    import torch

    from jobs.spec import Task


def _compiled(
    doc: str,
    requires: tuple[str, ...] = (),
    hooks: Mapping[str, Hook] | None = None,
    traits: tuple[str, ...] = ("partitioned",),
    **options: Any,
) -> Variant:
    """``options`` are ``TrainingArguments`` without their prefix ``torch_compile_``.

    The trait "partitioned": what is kept for the backward pass is chosen by a partitioner, which
    takes an activation memory budget.
    """
    arguments = {f"torch_compile_{name}": value for name, value in options.items()}
    return Variant(
        doc=doc,
        hooks=hooks or {},
        training_arguments={"torch_compile": True, **arguments},
        requires=requires,
        numerical_effect="rounding",
        traits=("compiled", *traits),
    )


def _regional(doc: str, backend: str) -> Variant:
    return Variant(
        doc=doc,
        hooks={"regions": Hook("compiled_regions", {"backend": backend})},
        numerical_effect="rounding",
        traits=("partitioned", "regional"),
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
        "inductor_regional": _regional(
            "TorchInductor for the repeated block of the model, compiled once, and for the loss; a "
            "first step that is several times shorter",
            "inductor",
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
        # The debugging backends generate no code: they show what tracing alone changes.
        "aot_eager": _compiled(
            "AOTAutograd without code generation, for debugging", backend="aot_eager"
        ),
        "aot_eager_regional": _regional(
            "AOTAutograd for the repeated block and the loss, without code generation, for "
            "debugging",
            "aot_eager",
        ),
        "eager": _compiled("TorchDynamo alone, for debugging", traits=(), backend="eager"),
        "cudagraphs": _compiled(
            "AOTAutograd with CUDA graphs: saves launch time",
            ("cuda",),
            traits=(),
            backend="cudagraphs",
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


@hook("compiled_regions")
def compiled_regions(
    model: torch.nn.Module, task: Task, arguments: Any, *, backend: str
) -> torch.nn.Module:
    """``model`` with its repeated blocks compiled, and with its loss if that is over a vocabulary.

    Blocks of one class share their compiled code, so the first block alone takes time. Raises
    NotImplementedError for a model without repeated blocks.
    """
    import torch

    blocks = 0
    for module in model.modules():
        # As accelerate.utils.other.is_repeated_blocks: a list of modules of one class.
        if isinstance(module, torch.nn.ModuleList) and len({type(block) for block in module}) == 1:
            for block in _blocks_to_compile(module):
                block.compile(backend=backend)
                blocks += 1
    if not blocks:
        raise NotImplementedError(
            f"{type(model).__name__} does not support regional compilation: no repeated blocks"
        )
    # Inside an adapter's wrapper is the model that calls its loss function.
    inner: Any = model
    if hasattr(inner, "get_base_model"):
        inner = inner.get_base_model()
    if task in ("causal-lm", "masked-lm", "seq2seq-lm") and hasattr(inner, "loss_function"):
        _compile_loss(inner, backend)
    return model


def _compile_loss(model: Any, backend: str) -> None:
    """Compile a model's loss function, or only the region of it that is repeated."""
    import torch

    region = getattr(model.loss_function, "region", None)
    if region is None:
        model.loss_function = torch.compile(model.loss_function, backend=backend)
    else:
        region.function = torch.compile(region.function, backend=backend)


def _blocks_to_compile(modules: Any) -> list[Any]:
    """The modules of a list, unless they hold such lists themselves."""
    import torch

    if any(isinstance(inner, torch.nn.ModuleList) for inner in modules[0].modules()):
        return []
    return list(modules)
