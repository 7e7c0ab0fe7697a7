"""Imports everything that a trial may need, and initialises nothing, so that it can be forked."""

import contextlib
import functools
import importlib
import os
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from unittest.mock import patch

from jobs.node import nvml

_MODULES = """
    torch torch.profiler numpy datasets transformers transformers.trainer accelerate peft
    bitsandbytes deepspeed jobs.trial.run jobs.trackers.sources.dispatch_mode
    jobs.trial.effective_config jobs.anatomy.profile jobs.trial.models jobs.trial.data
    jobs.loops.trainer jobs.loops.accelerate jobs.loops.deepspeed
"""
"""What a trial may import, in this order, because later modules import earlier ones."""


def preload() -> float:
    """Import those of ``_MODULES`` that are installed; returns the seconds that it took."""
    begin = time.perf_counter()
    with _gpu_answers_from_nvml():
        for name in _MODULES.split():
            # What is not installed makes some trials unsupported, and only those.
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    return time.perf_counter() - begin


def remember_processor() -> bool:
    """Have py-cpuinfo, which DeepSpeed asks for every op, look only once: whether this did it."""
    import cpuinfo

    if hasattr(cpuinfo.get_cpu_info, "cache_info"):  # replaced already
        return False
    cpuinfo.get_cpu_info = functools.cache(cpuinfo.get_cpu_info)
    cpuinfo.get_cpu_info()
    return True


def unclean() -> str:
    """Why this process must not be forked for trials (a fork tries to compute); empty if it may."""
    import torch

    if torch.cuda.is_initialized():
        return "the preload initialised CUDA"
    if threading.active_count() > 1:
        names = ", ".join(thread.name for thread in threading.enumerate()[1:])
        return f"the preload left threads: {names}"
    if torch.cuda.is_available() and not _forked_child_computes():
        return "a forked child could not use CUDA"
    return ""


def _forked_child_computes() -> bool:
    import torch

    pid = os.fork()
    if pid == 0:
        try:
            os._exit(int(torch.ones(2, device="cuda").sum().item() != 2))
        except Exception:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@contextlib.contextmanager
def _gpu_answers_from_nvml() -> Iterator[None]:
    """While the context lasts, torch describes the GPU from NVML, without a CUDA context.
    bitsandbytes and torchao (``torch.utils._triton.has_triton``) ask while they are imported."""
    import torch
    from torch._dynamo import device_interface

    uuids = nvml.visible_uuids()
    if not uuids:
        yield
        return
    capability = nvml.compute_capability(uuids[0])
    properties = SimpleNamespace(major=capability[0], minor=capability[1], gcnArchName="")
    # Only while the libraries are imported: a trial shall ask the device itself.
    with patch.multiple(
        torch.cuda,
        get_device_capability=lambda device=None: capability,
        get_device_properties=lambda device=None: properties,
        current_device=lambda: 0,
    ):
        yield
    device_interface.caching_worker_device_properties.clear()
