"""How the ranks of a trial really shared its states, read from the live objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.anatomy.memory.live_tensors import nested_tensors
from jobs.errors import UnsupportedError
from jobs.record import Column

if TYPE_CHECKING:
    import torch

COLUMNS = (
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
    """Values for those of ``COLUMNS`` that apply; ``model`` is as trained. UnsupportedError for a
    model that one process trained on several GPUs."""
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
