"""The effective configuration, read back from live objects and from one more, profiled step: not what was asked for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from jobs.record import Column

if TYPE_CHECKING:
    import torch

    from jobs.loops.base import Trained

COLUMNS = (
    Column(name="optimizer_class", type="string", doc="class of the optimizer that stepped"),
    Column(name="optimizer_implementation", type="string", doc="fused, foreach, forloop, or the library's own"),
    Column(name="optimizer_state_dtypes", type="string", doc="dtypes of its state tensors, by bytes held"),
    Column(name="optimizer_state_bytes", type="int64", unit="B", doc="bytes of its state tensors, wherever they live"),
    Column(name="parameter_dtypes", type="string", doc="dtypes of the parameters, by count"),
    Column(name="parameters_total", type="int64", doc="parameters, frozen ones included"),
    Column(name="parameters_trainable", type="int64", doc="parameters that the optimizer updates"),
    Column(name="attention_kernel", type="string", doc="attention operators that ran in the inspected step"),
    Column(name="matmul_dtype", type="string", doc="dtype that most matrix products of the inspected step ran in"),
    Column(name="tf32", type="bool", doc="TF32 matrix products were allowed"),
    Column(name="autocast", type="string", doc="autocast dtype of the loop, or 'off'"),
    Column(name="compiled_graphs", type="int64", doc="graphs torch.compile made"),
    Column(name="compile_graph_breaks", type="int64", doc="graph breaks torch.compile met"),
    Column(name="compile_seconds", type="float64", unit="s", doc="time spent in torch.compile's entry point"),
    Column(name="checkpointed_layers", type="int64", doc="modules whose activations are recomputed"),
    Column(name="zero_stage", type="int64", doc="ZeRO stage of the live DeepSpeed engine"),
    Column(name="offload_optimizer_device", type="string", doc="where the engine keeps optimizer states"),
    Column(name="offload_parameter_device", type="string", doc="where the engine keeps parameters"),
    Column(name="dataloader_workers", type="int64", doc="worker processes of the live data loader"),
    Column(name="inspection_seconds", type="float64", unit="s", doc="what this inspection cost, apart from the steps"),
)


def inspect(trained: Trained, device: torch.device) -> dict[str, Any]:
    """Values for ``COLUMNS``; without a GPU also ``peak_allocated_bytes``, tracked over the profiled step."""
    begin = time.perf_counter()
    model = trained.accelerator.unwrap_model(trained.model, keep_torch_compile=False)
    values = {
        **_optimizer(_innermost(trained.optimizer)),
        **_parameters(model),
        **_switches(trained, model),
        **_compilation(),
        **_engine(trained.model),
        **_profiled(trained, model, device),
    }
    return {**values, "inspection_seconds": time.perf_counter() - begin}


def _innermost(optimizer: Any) -> Any:
    """The optimizer inside Accelerate's and DeepSpeed's wrappers."""
    while (inner := getattr(optimizer, "optimizer", None)) is not None:
        optimizer = inner
    return optimizer


def _optimizer(optimizer: Any) -> dict[str, Any]:
    defaults = getattr(optimizer, "defaults", {})
    flags = [name for name in ("fused", "foreach") if defaults.get(name)]
    own = type(optimizer).__module__.startswith("torch.optim")
    implementation = flags[0] if flags else ("foreach" if _foreach_by_default(optimizer) else "forloop")
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
                yield from _plain_tensors(getattr(value, name) for name in value.__tensor_flatten__()[0])
            else:
                yield value


def _parameters(model: torch.nn.Module) -> dict[str, Any]:
    dtypes: Counter[str] = Counter()
    trainable = 0
    for parameter in model.parameters():
        count = int(getattr(parameter, "ds_numel", parameter.numel()))  # ZeRO-3 leaves empty shells behind
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
        bool(getattr(module, "gradient_checkpointing", False) and getattr(module, "_gradient_checkpointing_func", None))
        for module in model.modules()
    )
    return {
        "tf32": torch.cuda.is_available() and _allows_tf32(),
        # native_amp: where it is not (fp16 on a CPU, DeepSpeed's own casting) the precision asked for does nothing.
        "autocast": trained.accelerator.mixed_precision if trained.accelerator.native_amp else "off",
        "checkpointed_layers": checkpointed,
        "dataloader_workers": int(getattr(trained.dataloader, "num_workers", 0)),
    }


def _allows_tf32() -> bool:
    """Whether matrix products may use TF32; asking the older switch after the newer was set raises."""
    import torch

    matmul = torch.backends.cuda.matmul
    return bool(matmul.fp32_precision == "tf32" if hasattr(matmul, "fp32_precision") else matmul.allow_tf32)


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


def _profiled(trained: Trained, model: torch.nn.Module, device: torch.device) -> dict[str, Any]:
    """One more step under the CPU profiler: which operators ran, in which dtypes, and on the CPU what they held."""
    import torch

    on_cpu = device.type == "cpu"
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True, profile_memory=on_cpu) as profile:
        trained.step()
    events = profile.profiler.kineto_results.events()
    attention: Counter[str] = Counter()
    products: Counter[str] = Counter()
    for event in events:
        name = event.name()
        if name in _PRODUCTS and event.dtypes():
            dtype = event.dtypes()[-1 if name == "aten::mm" else 1]
            products[_CPP_NAMES.get(dtype, dtype)] += 1
        elif name in _ATTENTION:
            attention[_ATTENTION[name]] += 1
    # A compiler may fuse attention into kernels of its own: then only the implementation it compiled is known.
    compiled = f"{getattr(model.config, '_attn_implementation', '')} (compiled)"
    values: dict[str, Any] = {
        "attention_kernel": _ranked(attention) or compiled,
        "matmul_dtype": _ranked(products).split(", ")[0],
    }
    if on_cpu:
        flow = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
        values["peak_allocated_bytes"] = _held(model, _innermost(trained.optimizer)) + _highest(n for _, n in flow)
    return values


_CPP_NAMES = {"float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16"}
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm")
_ATTENTION = {
    "aten::_scaled_dot_product_flash_attention": "flash",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "flash (cpu)",
    "aten::_scaled_dot_product_efficient_attention": "efficient",
    "aten::_scaled_dot_product_cudnn_attention": "cudnn",
    "aten::_scaled_dot_product_fused_attention_overrideable": "overrideable",
    "aten::_scaled_dot_product_attention_math": "math",
    "aten::_softmax": "softmax",
    "flash_attn::_flash_attn_forward": "flash-attn",
    "flash_attn::_flash_attn_varlen_forward": "flash-attn",
    "flex_attention": "flex",
}


def _held(model: torch.nn.Module, optimizer: Any) -> int:
    """Bytes of the storages that live through a step: parameters, buffers, optimizer states."""
    tensors = [*model.parameters(), *model.buffers()]
    for state in getattr(optimizer, "state", {}).values():
        tensors += _plain_tensors(state.values() if isinstance(state, Mapping) else ())
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors if t.device.type == "cpu"}
    return sum(storages.values())


def _highest(changes: Iterable[int]) -> int:
    level = peak = 0
    for change in changes:
        level += change
        peak = max(peak, level)
    return peak


def _ranked(counts: Counter[str]) -> str:
    return ", ".join(name for name, _ in counts.most_common())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
