"""Which code really ran: compiled graphs, fused losses, replaced layers, allocator settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jobs.record import Column
from jobs.trial.weight_formats import inside_adapter

if TYPE_CHECKING:
    import torch

COLUMNS = (
    Column.count("compiled_graphs", "Graphs that torch.compile made"),
    Column.count("compile_graph_breaks", "Graph breaks that torch.compile met"),
    Column.count("recompilations", "Code that torch.compile made again for inputs unlike before"),
    Column.seconds("compile_seconds", "Time spent compiling in torch.compile"),
    Column.count(
        "compile_cache_hits",
        "Graphs whose code an earlier trial had left in the node's compile cache",
    ),
    Column.number(
        "activation_memory_budget",
        "Share of the activations that the compiler may keep for the backward pass; null without "
        "compilation",
    ),
    Column.count(
        "inductor_cache_hits",
        "Forward and backward passes whose kernels came from the node's compile cache",
    ),
    Column.text(
        "loss_implementation",
        "Who computed a causal model's loss: plain (transformers), chunked, liger, cce, eaft or "
        "trl",
    ),
    Column.nbytes(
        "offloaded_activation_bytes",
        "Bytes of the last micro-batch's activations that waited in host memory; null without "
        "offloading",
    ),
    Column.count("liger_modules", "Modules of the model that ran Liger's kernels"),
    Column.count("hub_kernel_modules", "Modules that ran a Hub kernel; null if none was asked for"),
    Column.count("float8_linears", "Linear layers, of linear_layers, that multiplied in FP8"),
    Column.count(
        "fake_quantized_linears",
        "Linear layers, of linear_layers, that rounded their weights; null if none did",
    ),
    Column.count("linear_layers", "Linear layers of the model, those of adapters included"),
    Column.text("experts_implementation", "How experts were computed; null without experts"),
    Column.text("allocator_settings", "PyTorch's allocator settings that are not its defaults"),
)


def code(model: torch.nn.Module) -> dict[str, Any]:
    """Values for those of ``COLUMNS`` that apply. ``model`` is without wrappers."""
    inner = inside_adapter(model)
    values = {**_compilation(), **_loss(inner), **_layers(model), **_linears(model), **_allocator()}
    if offloading := getattr(model, "activation_offloading", None):
        values["offloaded_activation_bytes"] = offloading.moved_bytes
    chooses_experts = getattr(inner, "_can_set_experts_implementation", None)
    if chooses_experts is not None and chooses_experts():
        values["experts_implementation"] = inner.config._experts_implementation
    return values


def _compilation() -> dict[str, Any]:
    from torch._dynamo.utils import compilation_time_metrics, counters, get_compilation_metrics
    from torch._functorch import config

    graphs = counters["stats"].get("unique_graphs", 0)
    if not graphs:
        return {}
    # An id is "frame/version", where further attempts at a version add "_attempt".
    ids = [str(metric.compile_id) for metric in get_compilation_metrics()]
    versions = {identity.split("_")[0] for identity in ids if "/" in identity}
    # AOTAutograd's cache is asked first. Inductor's is asked for what that one does not have.
    return {
        "compiled_graphs": graphs,
        "compile_graph_breaks": sum(counters["graph_break"].values()),
        "recompilations": sum(not version.endswith("/0") for version in versions),
        "compile_seconds": float(sum(compilation_time_metrics.get("_compile.compile_inner", ()))),
        "compile_cache_hits": counters["aot_autograd"].get("autograd_cache_hit", 0),
        "inductor_cache_hits": counters["inductor"].get("fxgraph_cache_hit", 0),
        "activation_memory_budget": float(config.activation_memory_budget),
    }


def _loss(inner: Any) -> dict[str, Any]:
    """Who computed the loss; empty for a model whose loss has no vocabulary."""
    # TRL's forward has the same name as the one that it replaces. Only its globals are TRL's.
    function = getattr(getattr(inner, "forward", None), "__func__", None)
    if getattr(function, "__globals__", {}).get("__name__", "").startswith("trl."):
        return {"loss_implementation": "trl"}
    # Liger's own patch of a model, as use_liger_kernel makes it, replaces its whole forward.
    forward = getattr(inner, "_original_forward", None) or getattr(inner, "forward", None)
    if _module_of(forward).startswith("liger_kernel."):
        return {"loss_implementation": "liger"}
    loss_function = getattr(inner, "loss_function", None)
    # torch.compile keeps the function that it wraps.
    loss_function = getattr(loss_function, "_torchdynamo_orig_callable", loss_function)
    is_plain = getattr(loss_function, "__name__", "") == "ForCausalLMLoss"
    implementation = getattr(loss_function, "implementation", "plain" if is_plain else None)
    return {} if implementation is None else {"loss_implementation": implementation}


def _layers(model: torch.nn.Module) -> dict[str, Any]:
    from_hub = getattr(inside_adapter(model), "hub_kernel_layers", None)
    if from_hub is not None:
        return {"hub_kernel_modules": from_hub}
    # Liger binds its own forward to a module that transformers made.
    defined_in = [_module_of(module.forward) for module in model.modules()]
    replaced = sum(name.startswith("liger_kernel.") for name in defined_in)
    return {"liger_modules": replaced} if replaced else {}


def _module_of(function: Any) -> str:
    return str(getattr(getattr(function, "__func__", function), "__module__", "") or "")


def _allocator() -> dict[str, Any]:
    """The allocator's settings, from its own description; empty without a GPU."""
    import torch

    if not torch.cuda.is_available():
        return {}
    settings: Mapping[str, Any] = torch.cuda.memory._snapshot().get("allocator_settings", {})
    # The defaults of the CUDA caching allocator (c10/cuda/CUDAAllocatorConfig.h).
    plain = {
        "expandable_segments": False,
        "garbage_collection_threshold": 0.0,
        "max_split_size": -1,
    }
    changed = [
        f"{name}:{settings[name]}"
        for name, default in plain.items()
        if settings.get(name, default) != default
    ]
    divisions = settings.get("roundup_power2_divisions") or {}
    if any(divisions.values()):
        changed.append(f"roundup_power2_divisions:{max(divisions.values())}")
    return {"allocator_settings": ", ".join(changed)}


def _linears(model: torch.nn.Module) -> dict[str, Any]:
    import torch

    linears = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    names = [type(module).__name__ for module in linears]
    counts = {"linear_layers": len(names), "float8_linears": names.count("Float8Linear")}
    # torchao has a class of its own for each family of number formats.
    rounding = sum(name.endswith("FakeQuantizedLinear") for name in names)
    if rounding:
        counts["fake_quantized_linears"] = rounding
    return counts
