"""A smaller GPU, simulated on a larger one by capping PyTorch's allocator."""

from jobs.errors import UnsupportedError
from jobs.node import environment, nvml
from jobs.spec import MemoryCap, TrialSpec


def of(spec: TrialSpec) -> MemoryCap | None:
    """The smaller of the trial's cap and its node's (``ORCHESTRATOR_GPU_GIB``); None: no cap."""
    caps = [spec.measure.memory_cap] if spec.measure.memory_cap else []
    if nvml.visible_uuids() and (simulated_bytes := environment.simulated_gpu_bytes()):
        caps.append(MemoryCap(device_bytes=simulated_bytes))
    return min(caps, key=lambda cap: cap.device_bytes, default=None)


def impose(cap: MemoryCap, context_bytes: int | None) -> None:
    """Limit the allocator to the cap, less what is outside it. UnsupportedError without a GPU."""
    import torch

    if context_bytes is None:
        raise UnsupportedError("memory_cap", "without a GPU there is no allocator to cap")
    # What libraries take is known only from an earlier trial. The bare context is the least.
    outside_allocator = max(context_bytes, cap.non_allocator_bytes)
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    fraction = min(1.0, max(0, cap.device_bytes - outside_allocator) / properties.total_memory)
    torch.cuda.set_per_process_memory_fraction(fraction)


def in_words(cap: MemoryCap) -> str:
    """What the reason of an error under a cap begins with: ``under a cap of 23.75 GiB, ...``."""
    return f"under a cap of {cap.device_bytes / 2**30:.4g} GiB, context and libraries included"
