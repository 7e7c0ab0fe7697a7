"""Compile axis: ``torch.compile`` with its backends and modes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from jobs.spec import Hook, Task
from jobs.techniques.hooks import hook
from jobs.techniques.variant import Axis, Variant, add

if TYPE_CHECKING:
    import torch


def _compiled(
    doc: str,
    requires: tuple[str, ...] = (),
    hooks: Mapping[str, Hook] | None = None,
    traits: tuple[str, ...] = ("partitioned",),
    **options: Any,
) -> Variant:
    """``options`` are ``TrainingArguments`` without their prefix ``torch_compile_``. "partitioned":
    the backend chooses the activations to keep, and respects a budget for them."""
    arguments = {f"torch_compile_{name}": value for name, value in options.items()}
    return Variant(
        doc=doc,
        hooks=hooks or {},
        training_arguments={"torch_compile": True, **arguments},
        requires=requires,
        numerical_effect="rounding",
        traits=("compiled", *traits),
    )


def _regional(doc: str, backend: str, **options: Any) -> Variant:
    return Variant(
        doc=doc,
        hooks={"regions": Hook("compiled_regions", {"backend": backend, **options})},
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
            "TorchInductor for the repeated block of the model and for the loss: all layers share "
            "the code of one block, so the first step is several times shorter",
            "inductor",
        ),
        "inductor_regional_any_batch": _regional(
            "inductor_regional with code for all micro-batches: later trials take it from the "
            "node's cache; it may be slower, because it is not specialized for one micro-batch",
            "inductor",
            any_batch=True,
        ),
        "inductor_regional_tuned": _regional(
            "inductor_regional that times several tilings of its fused kernels on a GPU; its first "
            "step takes longer",
            "inductor",
            tuned=True,
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
        "inductor_max_autotune_cudagraphs": _compiled(
            "inductor_max_autotune with CUDA graphs: saves launch time, costs memory",
            ("cuda",),
            backend="inductor",
            mode="max-autotune",
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
add(COMPILE)


@hook("tuned_inductor")
def tuned_inductor() -> None:
    """Let TorchInductor time several tilings of its kernels; matrix products stay in cuBLAS."""
    from torch._inductor import config

    config.max_autotune_pointwise = True
    config.coordinate_descent_tuning = True


@hook("compiled_regions")
def compiled_regions(
    model: torch.nn.Module,
    task: Task,
    arguments: Any,
    *,
    backend: str,
    any_batch: bool = False,
    tuned: bool = False,
) -> torch.nn.Module:
    """``model`` with compiled blocks of its language model, if it has one, and its compiled loss.

    Blocks of the same class share the compiled code, so only the first block takes time. With
    ``any_batch``, the code works for all sizes of the first dimension, the batch. With ``tuned``,
    TorchInductor times several tilings of each kernel. Raises NotImplementedError for a model
    without repeated blocks.
    """
    options: dict[str, Any] = {"backend": backend}
    if tuned:
        # Coordinate descent, which tuned_inductor uses as well, would take several times as long.
        options["options"] = {"max_autotune_pointwise": True}
    if "seq2seq" in task and not getattr(arguments, "use_cache", False):
        _without_cache(model)
    # PEFT wraps the model. The loss function and the decoder belong to the wrapped model.
    inner: Any = model
    if hasattr(inner, "get_base_model"):
        inner = inner.get_base_model()
    # Blocks of vision towers split their input by sizes that are values of the batch, and attend to
    # windows of other sizes in some blocks. So compiled code would not serve the next block.
    part: Any = inner.get_decoder() if task == "image-text-to-text" else model
    blocks = [block for module in part.modules() for block in repeated_blocks(module)]
    if not blocks:
        raise NotImplementedError(
            f"{type(model).__name__} does not support regional compilation: no repeated blocks"
        )
    for block in blocks:
        block.compile(**options)
        if any_batch:
            block._compiled_call_impl = _with_any_batch(block._compiled_call_impl)
    if task in _OVER_A_VOCABULARY and hasattr(inner, "loss_function"):
        _compile_loss(inner, options, any_batch)
    return model


_OVER_A_VOCABULARY = ("causal-lm", "masked-lm", "seq2seq-lm", "image-text-to-text")
"""Tasks whose loss is over a vocabulary, and worth compiling."""


def _without_cache(model: torch.nn.Module) -> None:
    """Let no part of a model keep keys and values: such blocks share no code with each other. The
    Trainer changes the configuration of the model alone, but the decoder of T5 has a copy."""
    for part in model.modules():
        config: Any = getattr(part, "config", None)
        if getattr(config, "use_cache", False):
            config.use_cache = False


def _compile_loss(model: Any, options: Mapping[str, Any], any_batch: bool) -> None:
    """Compile a model's loss function; if it has a ``region``, only this repeated part of it."""
    import torch

    region = getattr(model.loss_function, "region", None)
    function = model.loss_function if region is None else region.function
    compiled: Any = torch.compile(function, **options)
    if any_batch:
        compiled = _with_any_batch(compiled)
    if region is None:
        model.loss_function = compiled
    else:
        region.function = compiled


def _with_any_batch(compiled: Callable[..., Any]) -> Callable[..., Any]:
    import functools

    import torch

    @functools.wraps(compiled)
    def call(*inputs: Any, **options: Any) -> Any:
        tensors = []
        for value in (*inputs, *options.values()):
            if isinstance(value, torch.Tensor) and value.dim() > 0:
                tensors.append(value)
        # A mask may have one row for all samples. So only sizes equal to the first are the batch's.
        for tensor in tensors:
            if len(tensor) == len(tensors[0]) and not isinstance(tensor, torch.nn.Parameter):
                torch._dynamo.maybe_mark_dynamic(tensor, 0)
        return compiled(*inputs, **options)

    return call


def repeated_blocks(module: Any) -> list[Any]:
    """The modules of a list of layers; none if they contain lists of layers themselves."""
    if not _is_list_of_layers(module) or any(map(_is_list_of_layers, module[0].modules())):
        return []
    return list(module)


def _is_list_of_layers(module: torch.nn.Module) -> bool:
    """As accelerate.utils.other.isrepeated_blocks says; a block of T5 lists several classes."""
    import torch

    return isinstance(module, torch.nn.ModuleList) and len({type(part) for part in module}) == 1
