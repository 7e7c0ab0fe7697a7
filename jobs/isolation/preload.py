"""Import everything a trial may need and initialise nothing: no CUDA context, no threads, no child processes."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

from jobs.node import nvml

MODULES = (
    "torch",
    "torch.profiler",
    "numpy",
    "datasets",
    "transformers",
    "transformers.trainer",
    "accelerate",
    "peft",
    "bitsandbytes",
    "deepspeed",
    "jobs.trial.run",
    "jobs.trackers.sources.dispatch_mode",
    "jobs.trial.effective_config",
    "jobs.anatomy.profile",
    "jobs.trial.models",
    "jobs.trial.data",
    "jobs.loops.trainer",
    "jobs.loops.accelerate",
    "jobs.loops.deepspeed",
)


def environment(cpus: int) -> dict[str, str]:
    """Variables a preloading process must be *started* with; libraries read them when they are loaded.

    The malloc thresholds make freed memory go back to the system, so that one trial's peak is not the next one's
    floor; PYTORCH_NVML_BASED_CUDA_CHECK lets ``torch.cuda.is_available`` answer without creating a context;
    Arrow's allocator must not start its background thread in a process that will be forked. PYTHONPATH makes this
    very copy of the code be found, whatever directory the process is started in.
    """
    code = str(Path(__file__).parents[2])
    variables = {
        "PYTHONPATH": os.pathsep.join([code, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "MALLOC_MMAP_THRESHOLD_": "131072",
        "MALLOC_TRIM_THRESHOLD_": "131072",
        "OMP_NUM_THREADS": str(cpus),
        "OPENBLAS_NUM_THREADS": "1",
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    if not (uuids := nvml.visible_uuids()):
        # Beside any other work on the cores, threads that spin while they wait for each other are much slower.
        return {**variables, "DS_ACCELERATOR": "cpu", "GOMP_SPINCOUNT": "0"}
    # One GPU: with several in sight the Trainer would silently use DataParallel.
    return {**variables, "CUDA_VISIBLE_DEVICES": nvml.visible_device(uuids[0])}


def preload() -> float:
    """Import ``MODULES``, those that are installed; returns the seconds it took."""
    begin = time.perf_counter()
    with _answered_from_nvml():
        for name in MODULES:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    return time.perf_counter() - begin


def remember_processor() -> bool:
    """Let py-cpuinfo answer from memory: DeepSpeed asks it twice for every op that it loads, and it takes seconds.
    Whether it did not yet."""
    import cpuinfo

    if hasattr(cpuinfo.get_cpu_info, "cache_info"):
        return False
    cpuinfo.get_cpu_info = functools.cache(cpuinfo.get_cpu_info)
    cpuinfo.get_cpu_info()
    return True


def unclean() -> str:
    """Why this process must not be forked for trials; empty when it may, which a forked canary has shown."""
    import torch

    if torch.cuda.is_initialized():
        return "the preload initialised CUDA"
    if threading.active_count() > 1:
        return f"the preload left threads: {', '.join(thread.name for thread in threading.enumerate()[1:])}"
    if torch.cuda.is_available() and not _canary_lives():
        return "a forked child could not use CUDA"
    return ""


def _canary_lives() -> bool:
    """Whether a forked child can create a CUDA context and compute; what any library did unseen would show here."""
    import torch

    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if torch.ones(2, device="cuda").sum().item() == 2 else 1)
        except Exception:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@contextlib.contextmanager
def _answered_from_nvml() -> Iterator[None]:
    """Answer what libraries ask of the GPU while being imported from NVML; torch's own answer creates a context.

    bitsandbytes asks for the compute capability, torchao (through ``torch.utils._triton.has_triton``) for the
    device's properties. What torch cached of these answers is forgotten afterwards.
    """
    import torch
    from torch._dynamo import device_interface

    uuids = nvml.visible_uuids()
    if not uuids:
        yield
        return
    major, minor = capability = nvml.compute_capability(uuids[0])
    answers = {
        "get_device_capability": lambda device=None: capability,
        "get_device_properties": lambda device=None: SimpleNamespace(
            major=major, minor=minor, gcnArchName=""
        ),
        "current_device": lambda: 0,
    }
    originals = {name: getattr(torch.cuda, name) for name in answers}
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(torch.cuda, name, original)
        device_interface.caching_worker_device_properties.clear()
