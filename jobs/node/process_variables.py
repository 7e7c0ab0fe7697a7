"""Environment variables that a measuring process must be started with."""

from __future__ import annotations

import os
from pathlib import Path

from jobs.node import nvml


def process_variables(cpus: int) -> dict[str, str]:
    """Variable -> value. Libraries read them when they are loaded, so later is too late.

    - PYTHONPATH: this copy of the code is found in whatever folder the process is started.
    - PYTORCH_NVML_BASED_CUDA_CHECK: ``torch.cuda.is_available`` creates no CUDA context.
    - MALLOC_*: freed memory goes back to the system, so that the peak of one trial is not the
      floor of the next.
    - JE_ARROW_MALLOC_CONF: Arrow's allocator starts no background thread, which a fork would lose.
    - CUDA_VISIBLE_DEVICES: one GPU, because the Trainer would use DataParallel on several.
    - GOMP_SPINCOUNT: without a GPU, threads do not spin while they wait for each other. That
      would be slow beside other work on the cores.
    """
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]
    variables = {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
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
    # DeepSpeed chooses its accelerator when it is imported, and finds a CPU only if it is named.
    uuids = nvml.visible_uuids()
    if not uuids:
        return {**variables, "DS_ACCELERATOR": "cpu", "GOMP_SPINCOUNT": "0"}
    return {**variables, "CUDA_VISIBLE_DEVICES": nvml.visible_device(uuids[0])}
