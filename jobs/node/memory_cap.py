"""A smaller GPU simulated on a larger one: the allocator gets what context and libraries leave of the cap."""

from __future__ import annotations

from jobs.errors import UnsupportedError
from jobs.node import environment, nvml
from jobs.spec import MemoryCap, TrialSpec

_GIB = 2**30


def of(spec: TrialSpec) -> MemoryCap | None:
    """The trial's cap, or its node's (``ORCHESTRATOR_GPU_GIB``) if that is smaller. None: the whole GPU."""
    simulated = environment.simulated_gpu_bytes() if nvml.visible_uuids() else 0
    caps = []
    if spec.measure.memory_cap:
        caps.append(spec.measure.memory_cap)
    if simulated:
        caps.append(MemoryCap(device_bytes=simulated))
    return min(caps, key=lambda cap: cap.device_bytes, default=None)


def impose(cap: MemoryCap, context_bytes: int | None) -> None:
    """Cap this process's allocator; ``context_bytes`` is what NVML saw the bare context take, None without a GPU.

    Raises UnsupportedError where there is no CUDA allocator.
    """
    import torch

    if context_bytes is None:
        raise UnsupportedError("memory_cap", "without a GPU there is no allocator to cap")
    left = max(0, cap.device_bytes - max(context_bytes, cap.non_allocator_bytes))
    torch.cuda.set_per_process_memory_fraction(min(1.0, left / _device_bytes()))


def limit_bytes() -> int | None:
    """What this process's allocator may hold, read back from it; None where only the device limits it."""
    import torch

    fraction = torch.cuda.get_per_process_memory_fraction()
    return None if fraction >= 1 else int(fraction * _device_bytes())


def in_words(cap: MemoryCap) -> str:
    """How an error under a cap begins: ``under a cap of 16.0 GiB, context and libraries included``."""
    return f"under a cap of {cap.device_bytes / _GIB:.4g} GiB, context and libraries included"


def _device_bytes() -> int:
    """What the allocator takes the fraction of."""
    import torch

    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)
