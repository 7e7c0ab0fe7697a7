"""The effective configuration: what really ran, read from the live objects after training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jobs.loops.trl import facts as preference_facts
from jobs.record import Column
from jobs.trial import effective_code, weight_formats
from jobs.trial.weight_formats import plain_tensors, stored_tensors

if TYPE_CHECKING:
    import torch

    from jobs.loops.base import Trained

COLUMNS = (
    Column.text("trainer_class", "Class of the Trainer that ran the loop; empty: a plain loop"),
    Column.text(
        "trainer_settings",
        "Settings beyond TrainingArguments that the Trainer's class had after the training, as far "
        "as they are not at the class's default, such as TRL's packing",
    ),
    *preference_facts.COLUMNS,
    Column.text("optimizer_class", "Class of the optimizer that updated the weights"),
    Column.text(
        "optimizer_implementation",
        "The optimizer's implementation: fused, foreach, forloop, or the library's own (library)",
    ),
    Column.text(
        "optimizer_state_dtypes",
        "Dtypes of the optimizer's state tensors, the one with most bytes first",
    ),
    Column.nbytes(
        "optimizer_state_bytes", "Bytes of the optimizer's state tensors, on whatever device"
    ),
    *weight_formats.COLUMNS,
    Column("tf32", "bool", "Whether matrix products were allowed to use TF32"),
    Column.text("autocast", "Autocast dtype of the training loop, or off"),
    *effective_code.COLUMNS,
    Column.count("checkpointed_layers", "Modules whose activations are recomputed"),
    Column.count("zero_stage", "ZeRO stage of the DeepSpeed engine"),
    Column.text(
        "offload_optimizer_device",
        "Where the DeepSpeed engine keeps optimizer states: none (the GPU), cpu or nvme",
    ),
    Column.text(
        "offload_parameter_device",
        "Where the DeepSpeed engine keeps parameters: none (the GPU), cpu or nvme",
    ),
    Column.text(
        "accumulation_loss_scaling",
        "What divides the loss of an accumulated step: the model (native), the training loop "
        "(divided), or the loop because the model ignores num_items_in_batch (corrected: the "
        "Trainer alone would train with a loss too large by the accumulation)",
    ),
    Column.number(
        "accumulation_loss_ratio",
        "Loss of a step that accumulates one micro-batch, divided by its loss without "
        "accumulation; 1 if the gradients are right, null where it was not checked",
    ),
    Column.count("dataloader_workers", "Worker processes of the data loader"),
    Column.nbytes(
        "persistent_bytes",
        "On a CPU, bytes of parameters, buffers and optimizer states, which live through every "
        "step",
    ),
)


def inspect(trained: Trained) -> dict[str, Any]:
    """Values for those of ``COLUMNS`` that apply, and a fallback for ``attention_kernel``.

    A compiler may fuse attention into kernels of its own. Then no attention operator is seen.
    The fallback then names the implementation that was compiled.
    """
    model = trained.accelerator.unwrap_model(trained.model, keep_torch_compile=False)
    optimizer = _innermost(trained.optimizer)
    implementation = getattr(getattr(model, "config", None), "_attn_implementation", "")
    return {
        "attention_kernel": f"{implementation} (compiled)",
        "trainer_class": trained.trainer_class,
        "trainer_settings": trained.trainer_settings,
        **preference_facts.measurements(trained.preferences),
        **_optimizer(optimizer),
        # In the order of COLUMNS; whatever does not apply is left out.
        **weight_formats.measurements(model),
        **_loop_settings(trained, model),
        **effective_code.code(model),
        **_deepspeed(trained.model),
        **_persistent(_models(trained, model), optimizer),
    }


def _innermost(optimizer: Any) -> Any:
    """The optimizer inside Accelerate's and DeepSpeed's wrappers."""
    while True:
        inner = getattr(optimizer, "optimizer", None)
        if inner is None:
            return optimizer
        optimizer = inner


def _optimizer(optimizer: Any) -> dict[str, Any]:
    kind = type(optimizer)
    # Each state tensor counts with its real bytes: a quantised state is smaller than its values.
    bytes_by_dtype: Counter[str] = Counter()
    for tensor in _state_tensors(optimizer):
        bytes_by_dtype[_name(tensor.dtype)] += tensor.nbytes
    return {
        "optimizer_class": f"{kind.__module__.split('.')[0]}.{kind.__name__}",
        "optimizer_implementation": _implementation(optimizer),
        "optimizer_state_dtypes": _most_common_first(bytes_by_dtype),
        "optimizer_state_bytes": sum(bytes_by_dtype.values()),
    }


def _implementation(optimizer: Any) -> str:
    """How torch.optim computes the update; "library" for an optimizer from elsewhere."""
    if not type(optimizer).__module__.startswith("torch.optim"):
        return "library"
    for name in ("fused", "foreach"):
        if optimizer.defaults.get(name):
            return name
    if _is_foreach_by_default(optimizer):
        return "foreach"
    return "forloop"


def _is_foreach_by_default(optimizer: Any) -> bool:
    """torch.optim itself chooses foreach for parameters on a GPU if neither flag was set."""
    if optimizer.defaults.get("foreach") is not None:
        return False
    # One parameter on a CPU is enough for PyTorch to choose the plain loop.
    groups = optimizer.param_groups
    return all(parameter.is_cuda for group in groups for parameter in group["params"])


def _state_tensors(optimizer: Any) -> Iterator[torch.Tensor]:
    """The plain tensors of an optimizer's states."""
    import torch

    # One mapping of named values per parameter, as in torch.optim.
    for state in getattr(optimizer, "state", {}).values():
        if isinstance(state, Mapping):
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    yield from plain_tensors(value)


def _loop_settings(trained: Trained, model: torch.nn.Module) -> dict[str, Any]:
    import torch

    accelerator = trained.accelerator
    return {
        "tf32": torch.cuda.is_available() and _allows_tf32(),
        # Without native_amp (fp16 on a CPU, DeepSpeed's own casting) mixed_precision has no effect.
        "autocast": accelerator.mixed_precision if accelerator.native_amp else "off",
        "checkpointed_layers": sum(_is_checkpointed(module) for module in model.modules()),
        "dataloader_workers": int(getattr(trained.dataloader, "num_workers", 0)),
    }


def _is_checkpointed(module: torch.nn.Module) -> bool:
    # Models set the flag on every layer, and the function only where it is used.
    is_enabled = getattr(module, "gradient_checkpointing", False)
    return bool(is_enabled and getattr(module, "_gradient_checkpointing_func", None))


def _allows_tf32() -> bool:
    """Whether matrix products may use TF32.

    PyTorch has an older and a newer switch; reading the older after the newer was set raises.
    """
    import torch

    matmul = torch.backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):
        return bool(matmul.fp32_precision == "tf32")
    return bool(matmul.allow_tf32)


def _deepspeed(model: Any) -> dict[str, Any]:
    """The engine's stage and offloading; empty without DeepSpeed."""
    if not hasattr(model, "zero_optimization_stage"):
        return {}
    # The engine's config is the mapping that it was made from.
    config: Mapping[str, Any] = {}
    if isinstance(model.config, Mapping):
        config = model.config
    zero = config.get("zero_optimization", {})
    return {
        "zero_stage": int(model.zero_optimization_stage()),
        "offload_optimizer_device": _device_of(zero, "offload_optimizer"),
        "offload_parameter_device": _device_of(zero, "offload_param"),
    }


def _device_of(zero: Mapping[str, Any], section: str) -> Any:
    return (zero.get(section) or {}).get("device", "none")


def _models(trained: Trained, model: torch.nn.Module) -> list[torch.nn.Module]:
    """The model, and the reference that a preference training compares it with."""
    if trained.preferences is None or trained.preferences.reference is None:
        return [model]
    return [model, trained.preferences.reference]


def _persistent(models: Sequence[torch.nn.Module], optimizer: Any) -> dict[str, Any]:
    """Bytes of the storages that live through a step; on a GPU the allocator counts them."""
    import torch

    if torch.cuda.is_available():
        return {}
    nbytes_by_address: dict[int, int] = {}  # tensors may share a storage
    weights: list[torch.Tensor] = []
    for model in models:
        weights += [tensor for item in model.parameters() for tensor in stored_tensors(item)]
        weights += model.buffers()
    for tensor in (*weights, *_state_tensors(optimizer)):
        if tensor.device.type == "cpu":
            storage = tensor.untyped_storage()
            nbytes_by_address[storage.data_ptr()] = storage.nbytes()
    return {"persistent_bytes": sum(nbytes_by_address.values())}


def _most_common_first(counts: Counter[str]) -> str:
    return ", ".join(name for name, _ in counts.most_common())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
