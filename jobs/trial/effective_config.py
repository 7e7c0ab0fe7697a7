"""The effective configuration, read back from the live objects after training: not what was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from jobs.record import Column

if TYPE_CHECKING:
    import torch

    from jobs.loops.base import Trained

COLUMNS = (
    Column("optimizer_class", "string", "class of the optimizer that stepped"),
    Column("optimizer_implementation", "string", "fused, foreach, forloop, or the library's own"),
    Column("optimizer_state_dtypes", "string", "dtypes of its state tensors, by bytes held"),
    Column(
        "optimizer_state_bytes", "int64", "bytes of its state tensors, wherever they live", unit="B"
    ),
    Column("parameter_dtypes", "string", "dtypes of the parameters, by count"),
    Column("parameters_total", "int64", "parameters, frozen ones included"),
    Column("parameters_trainable", "int64", "parameters that the optimizer updates"),
    Column("tf32", "bool", "TF32 matrix products were allowed"),
    Column("autocast", "string", "autocast dtype of the loop, or 'off'"),
    Column("compiled_graphs", "int64", "graphs torch.compile made"),
    Column("compile_graph_breaks", "int64", "graph breaks torch.compile met"),
    Column("compile_seconds", "float64", "time spent in torch.compile's entry point", unit="s"),
    Column("checkpointed_layers", "int64", "modules whose activations are recomputed"),
    Column("zero_stage", "int64", "ZeRO stage of the live DeepSpeed engine"),
    Column("offload_optimizer_device", "string", "where the engine keeps optimizer states"),
    Column("offload_parameter_device", "string", "where the engine keeps parameters"),
    Column("dataloader_workers", "int64", "worker processes of the live data loader"),
    Column(
        "persistent_bytes",
        "int64",
        "without a GPU: parameters, buffers and optimizer states, which live through every step",
        unit="B",
    ),
)


def inspect(trained: Trained) -> dict[str, Any]:
    """Values for ``COLUMNS``, those that apply, and the kernel of attention if no operator of it was seen.

    A compiler may fuse attention into kernels of its own: then only the implementation that it compiled is known.
    """
    model = trained.accelerator.unwrap_model(trained.model, keep_torch_compile=False)
    optimizer = _innermost(trained.optimizer)
    implementation = getattr(getattr(model, "config", None), "_attn_implementation", "")
    return {
        "attention_kernel": f"{implementation} (compiled)",
        **_optimizer(optimizer),
        **_parameters(model),
        **_switches(trained, model),
        **_compilation(),
        **_engine(trained.model),
        **_persistent(model, optimizer),
    }


def _innermost(optimizer: Any) -> Any:
    """The optimizer inside Accelerate's and DeepSpeed's wrappers."""
    while (inner := getattr(optimizer, "optimizer", None)) is not None:
        optimizer = inner
    return optimizer


def _optimizer(optimizer: Any) -> dict[str, Any]:
    defaults = getattr(optimizer, "defaults", {})
    flags = [name for name in ("fused", "foreach") if defaults.get(name)]
    own = type(optimizer).__module__.startswith("torch.optim")
    implementation = (
        flags[0] if flags else ("foreach" if _foreach_by_default(optimizer) else "forloop")
    )
    bytes_by_dtype: Counter[str] = Counter()
    for state in getattr(optimizer, "state", {}).values():
        for tensor in _plain_tensors(state.values() if isinstance(state, Mapping) else ()):
            bytes_by_dtype[_name(tensor.dtype)] += tensor.nbytes
    return {
        "optimizer_class": f"{type(optimizer).__module__.split('.')[0]}.{type(optimizer).__name__}",
        "optimizer_implementation": implementation if own else "library",
        "optimizer_state_dtypes": _ranked(bytes_by_dtype),
        "optimizer_state_bytes": sum(bytes_by_dtype.values()),
    }


def _foreach_by_default(optimizer: Any) -> bool:
    """torch.optim chooses foreach itself for parameters on a GPU when neither flag was given."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return optimizer.defaults.get("foreach") is None and all(p.is_cuda for p in parameters)


def _plain_tensors(values: Iterable[Any]) -> Iterable[torch.Tensor]:
    """The tensors among ``values``; quantised subclasses (torchao) opened into the tensors they hold."""
    import torch

    for value in values:
        if isinstance(value, torch.Tensor):
            if hasattr(value, "__tensor_flatten__"):
                yield from _plain_tensors(
                    getattr(value, name) for name in value.__tensor_flatten__()[0]
                )
            else:
                yield value


def _parameters(model: torch.nn.Module) -> dict[str, Any]:
    dtypes: Counter[str] = Counter()
    trainable = 0
    for parameter in model.parameters():
        count = int(
            getattr(parameter, "ds_numel", parameter.numel())
        )  # ZeRO-3 leaves empty shells behind
        dtypes[_name(parameter.dtype)] += count
        trainable += count if parameter.requires_grad else 0
    return {
        "parameter_dtypes": _ranked(dtypes),
        "parameters_total": sum(dtypes.values()),
        "parameters_trainable": trainable,
    }


def _switches(trained: Trained, model: torch.nn.Module) -> dict[str, Any]:
    import torch

    checkpointed = sum(
        bool(
            getattr(module, "gradient_checkpointing", False)
            and getattr(module, "_gradient_checkpointing_func", None)
        )
        for module in model.modules()
    )
    return {
        "tf32": torch.cuda.is_available() and _allows_tf32(),
        # native_amp: where it is not (fp16 on a CPU, DeepSpeed's own casting) the precision asked for does nothing.
        "autocast": trained.accelerator.mixed_precision
        if trained.accelerator.native_amp
        else "off",
        "checkpointed_layers": checkpointed,
        "dataloader_workers": int(getattr(trained.dataloader, "num_workers", 0)),
    }


def _allows_tf32() -> bool:
    """Whether matrix products may use TF32; asking the older switch after the newer was set raises."""
    import torch

    matmul = torch.backends.cuda.matmul
    return bool(
        matmul.fp32_precision == "tf32" if hasattr(matmul, "fp32_precision") else matmul.allow_tf32
    )


def _compilation() -> dict[str, Any]:
    from torch._dynamo.utils import compilation_time_metrics, counters

    graphs = counters["stats"].get("unique_graphs", 0)
    if not graphs:
        return {}
    names = ("_compile.compile_inner", "entire_frame_compile")
    entry = next((spent for name in names if (spent := compilation_time_metrics.get(name))), ())
    return {
        "compiled_graphs": graphs,
        "compile_graph_breaks": sum(counters["graph_break"].values()),
        "compile_seconds": float(sum(entry)),
    }


def _engine(model: Any) -> dict[str, Any]:
    if not hasattr(model, "zero_optimization_stage"):
        return {}
    zero = model.config.get("zero_optimization", {}) if isinstance(model.config, Mapping) else {}
    return {
        "zero_stage": int(model.zero_optimization_stage()),
        "offload_optimizer_device": (zero.get("offload_optimizer") or {}).get("device", "none"),
        "offload_parameter_device": (zero.get("offload_param") or {}).get("device", "none"),
    }


def _persistent(model: torch.nn.Module, optimizer: Any) -> dict[str, Any]:
    """Bytes of the storages that live through a step; on a GPU the allocator knows better."""
    import torch

    if torch.cuda.is_available():
        return {}
    tensors = [*model.parameters(), *model.buffers()]
    for state in getattr(optimizer, "state", {}).values():
        tensors += _plain_tensors(state.values() if isinstance(state, Mapping) else ())
    storages = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
        for t in tensors
        if t.device.type == "cpu"
    }
    return {"persistent_bytes": sum(storages.values())}


def _ranked(counts: Counter[str]) -> str:
    return ", ".join(name for name, _ in counts.most_common())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
