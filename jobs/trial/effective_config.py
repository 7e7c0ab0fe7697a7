"""The effective configuration: what really ran, read from the live objects after training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from jobs.anatomy.memory.live_tensors import nested_tensors, optimizer_layers
from jobs.errors import UnsupportedError
from jobs.record import Column
from jobs.techniques import COLUMNS as LOOP_COLUMNS
from jobs.trial import effective_code, weight_formats
from jobs.trial.weight_formats import storage_bytes, stored_tensors

if TYPE_CHECKING:
    import torch

    from jobs.loops.contract import Trained

SHARDING_COLUMNS = (
    Column.text(
        "sharding_engine",
        "What shared the states over the GPUs: DDP, FSDP2 or DeepSpeed; null on one GPU",
    ),
    Column.number(
        "parameter_share", "Share of the parameters that a rank keeps between two steps, likewise"
    ),
    Column.count(
        "regathered_modules",
        "Modules whose parameters FSDP2 frees after the forward pass and gathers again for the "
        "backward pass; null without FSDP2",
    ),
    Column.text("communication_backend", "Library of the communication: nccl, or gloo on a CPU"),
)


def sharding(model: Any) -> dict[str, Any]:
    """Values for those of ``SHARDING_COLUMNS`` that apply; ``model`` is as trained.
    UnsupportedError for a model that one process trained on several GPUs."""
    import torch

    if isinstance(model, torch.nn.DataParallel):
        raise UnsupportedError(
            "data_parallel",
            "nn.DataParallel copies the model to every GPU in each step, and gathers all outputs on"
            " one; use sharding: ddp",
        )
    if not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
        return {}
    values = {
        "sharding_engine": _engine(model),
        "parameter_share": _parameter_share(model),
        "communication_backend": torch.distributed.get_backend(),
    }
    if values["sharding_engine"] == "FSDP2":
        values["regathered_modules"] = sum(map(_is_regathered, model.modules()))
    return values


def _engine(model: torch.nn.Module) -> str:
    from torch.distributed.fsdp import FSDPModule
    from torch.nn.parallel import DistributedDataParallel

    if hasattr(model, "zero_optimization_stage"):
        return "DeepSpeed"
    modules = list(model.modules())
    if any(isinstance(module, FSDPModule) for module in modules):
        return "FSDP2"
    return "DDP" if any(isinstance(own, DistributedDataParallel) for own in modules) else "none"


def _parameter_share(model: torch.nn.Module) -> float:
    # ZeRO-3 leaves empty shells, which know their size and have this rank's part beside them.
    parts = [getattr(own, "ds_tensor", own) for own in model.parameters()]
    held = sum(tensor.numel() for part in parts for tensor in nested_tensors(part))
    return held / sum(getattr(own, "ds_numel", own.numel()) for own in model.parameters())


def _is_regathered(module: torch.nn.Module) -> bool:
    """Whether this module is a unit of FSDP2 that frees its parameters after the forward pass."""
    state = getattr(module, "_get_fsdp_state", None)
    group = None if state is None else getattr(state(), "_fsdp_param_group", None)
    return getattr(group, "post_forward_mesh_info", None) is not None


COLUMNS = (
    Column.text("trainer_class", "Class of the Trainer that ran the loop; empty: a plain loop"),
    Column.text(
        "trainer_settings",
        "Settings beyond TrainingArguments that the Trainer's class had after the training and "
        "that are not its defaults, such as TRL's packing",
    ),
    *LOOP_COLUMNS,
    Column.text("optimizer_class", "Class of the optimizer that updated the weights"),
    Column.text("optimizer_implementation", "Fused, foreach, forloop, or library for its own"),
    Column.text("optimizer_state_dtypes", "Dtypes of the optimizer's state, the largest first"),
    Column.nbytes("optimizer_state_bytes", "Bytes of the optimizer's state, on whatever device"),
    *weight_formats.COLUMNS,
    Column("tf32", "bool", "Whether matrix products were allowed to use TF32"),
    Column.text("autocast", "Autocast dtype of the training loop, or off"),
    *effective_code.COLUMNS,
    Column.count("checkpointed_layers", "Modules whose activations are recomputed"),
    *SHARDING_COLUMNS,
    Column.count("zero_stage", "ZeRO stage of the DeepSpeed engine"),
    Column.text("offload_optimizer_device", "Where DeepSpeed keeps states: none (GPU), cpu, nvme"),
    Column.text(
        "offload_parameter_device", "Where DeepSpeed keeps parameters: none (GPU), cpu, nvme"
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
    Column.nbytes("persistent_bytes", "On a CPU, bytes of parameters, buffers and optimizer state"),
)


def inspect(trained: Trained) -> dict[str, Any]:
    """Values for those of ``COLUMNS`` that apply. A compiler may hide attention's operators."""
    model = trained.accelerator.unwrap_model(trained.model, keep_torch_compile=False)
    *_, optimizer = optimizer_layers(trained.optimizer)
    implementation = getattr(getattr(model, "config", None), "_attn_implementation", "")
    return {
        "attention_kernel": f"{implementation} (compiled)",
        "trainer_class": trained.trainer_class,
        "trainer_settings": trained.trainer_settings,
        **trained.columns,
        **_optimizer(optimizer),
        # In the order of COLUMNS; whatever does not apply is left out.
        **weight_formats.measurements(model),
        **_loop_settings(trained, model),
        **effective_code.code(model),
        **sharding(trained.model),
        **_deepspeed(trained.model),
        **_persistent(trained, model, optimizer),
    }


def _optimizer(optimizer: Any) -> dict[str, Any]:
    kind = type(optimizer)
    # Each state tensor counts with its real bytes: a quantised state is smaller than its values.
    bytes_by_dtype: Counter[str] = Counter()
    for tensor in _state_tensors(optimizer):
        bytes_by_dtype[str(tensor.dtype).removeprefix("torch.")] += tensor.nbytes
    dtypes = [name for name, _ in bytes_by_dtype.most_common()]
    return {
        "optimizer_class": f"{kind.__module__.split('.')[0]}.{kind.__name__}",
        "optimizer_implementation": _implementation(optimizer),
        "optimizer_state_dtypes": ", ".join(dtypes),
        "optimizer_state_bytes": sum(bytes_by_dtype.values()),
    }


def _implementation(optimizer: Any) -> str:
    """How torch.optim computes the update; "library" for an optimizer from elsewhere."""
    if not type(optimizer).__module__.startswith("torch.optim"):
        return "library"
    defaults = optimizer.defaults
    for name in ("fused", "foreach"):
        if defaults.get(name):
            return name
    # If no flag was set, torch.optim chooses foreach itself where every parameter is on a GPU.
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    is_chosen = defaults.get("foreach") is None and all(item.is_cuda for item in parameters)
    return "foreach" if is_chosen else "forloop"


def _state_tensors(optimizer: Any) -> Iterator[torch.Tensor]:
    import torch

    # One mapping of named values per parameter, as in torch.optim.
    for state in getattr(optimizer, "state", {}).values():
        if isinstance(state, Mapping):
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    yield from nested_tensors(value)


def _loop_settings(trained: Trained, model: torch.nn.Module) -> dict[str, Any]:
    import torch

    accelerator = trained.accelerator
    # Models set the flag on every layer, and the function only where it is used.
    checkpointed = [
        getattr(module, "gradient_checkpointing", False)
        and getattr(module, "_gradient_checkpointing_func", None) is not None
        for module in model.modules()
    ]
    uses_tf32 = torch.backends.cuda.matmul.fp32_precision == "tf32"
    return {
        "tf32": torch.cuda.is_available() and uses_tf32,
        # Without native_amp (fp16 on a CPU, DeepSpeed's own casting) mixed_precision has no effect.
        "autocast": accelerator.mixed_precision if accelerator.native_amp else "off",
        "checkpointed_layers": sum(map(bool, checkpointed)),
        "dataloader_workers": int(getattr(trained.dataloader, "num_workers", 0)),
    }


def _deepspeed(model: Any) -> dict[str, Any]:
    """The engine's stage and offloading; empty without DeepSpeed."""
    if not hasattr(model, "zero_optimization_stage"):
        return {}
    # The engine's config is the mapping that it was made from.
    zero = model.config.get("zero_optimization", {}) if isinstance(model.config, Mapping) else {}
    return {
        "zero_stage": int(model.zero_optimization_stage()),
        "offload_optimizer_device": (zero.get("offload_optimizer") or {}).get("device", "none"),
        "offload_parameter_device": (zero.get("offload_param") or {}).get("device", "none"),
    }


def _persistent(trained: Trained, model: torch.nn.Module, optimizer: Any) -> dict[str, Any]:
    """Bytes of the storages that live through a step; on a GPU the allocator counts them."""
    import torch

    if torch.cuda.is_available():
        return {}
    tensors = list(_state_tensors(optimizer))
    models = [model] if trained.reference_model is None else [model, trained.reference_model]
    for part in models:
        tensors += [tensor for item in part.parameters() for tensor in stored_tensors(item)]
        tensors += part.buffers()
    on_host = (tensor for tensor in tensors if tensor.device.type == "cpu")
    return {"persistent_bytes": storage_bytes(on_host)}
