"""How processes that measure are started, watched and ended with their parents (Linux)."""

import contextlib
import ctypes
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.node import nvml

END_SECONDS = 5.0  # how long a process may take to end, by itself or once it is killed
_LIBC = ctypes.CDLL(None)
_STATES = {
    "T": " (it is stopped)",
    "t": " (it is being debugged)",
    "D": " (it waits for a disk or a driver)",
}
"""State letter of proc(5) -> why such a process does not answer."""


def process_variables(cpus: int, gpus: int | None = 1) -> dict[str, str]:
    """Variable -> value, for a process that sees the first of the visible GPUs (None: all of them).
    Libraries read the variables when they are loaded, so later is too late."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]
    variables = {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),  # this copy of the code
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # torch.cuda.is_available creates no CUDA context
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        # Freed memory goes back, so that the peak of one trial is not the floor of the next.
        "MALLOC_MMAP_THRESHOLD_": "131072",
        "MALLOC_TRIM_THRESHOLD_": "131072",
        "OMP_NUM_THREADS": str(cpus),
        "OPENBLAS_NUM_THREADS": "1",
        "JE_ARROW_MALLOC_CONF": "background_thread:false",  # which a fork would lose
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    devices = [nvml.visible_device(uuid) for uuid in nvml.visible_uuids()[:gpus]]
    if devices:  # a trial's process sees one, because the Trainer would use DataParallel on several
        return {**variables, "CUDA_VISIBLE_DEVICES": ",".join(devices)}
    # DeepSpeed finds a CPU only if it is named. Waiting threads shall not spin beside other work.
    return {**variables, "DS_ACCELERATOR": "cpu", "GOMP_SPINCOUNT": "0"}


def probe(
    command: Sequence[str], timeout_seconds: float, env: Mapping[str, str] | None = None
) -> str:
    """What a command printed. Raises RuntimeError with the last line of its stderr or its exit
    status if it failed, and at the time limit."""
    # ``subprocess.run`` would wait for ever for a process that waits for a dead driver.
    process = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        output, errors = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=END_SECONDS)
        raise RuntimeError(f"it did not end within {timeout_seconds:g} s") from None
    if process.returncode != 0:
        raise RuntimeError(
            (errors.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
        )
    return output


def standstill(pid: int) -> str:
    """Why a process does not answer, in brackets; empty if it runs, or has ended."""
    with contextlib.suppress(OSError):
        # proc(5): the state comes after the command's name, which is in brackets.
        stat = Path(f"/proc/{pid}/stat").read_text()
        return _STATES.get(stat.rpartition(")")[2].split()[0], "")
    return ""


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, whose process id is ``parent``."""
    _LIBC.prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
    if os.getppid() != parent:  # the parent ended before the kernel was asked
        os._exit(1)


def continue_without_owner() -> None:
    """Have the kernel continue this process when its parent ends, so that it can end, too."""
    _LIBC.prctl(1, signal.SIGCONT)  # 1 is PR_SET_PDEATHSIG


def keep_bytecode() -> None:
    """Have this process and those that it starts keep their bytecode in the user's cache folder,
    unless torch has bytecode, the user has chosen a folder, or it cannot be written."""
    if not sys.dont_write_bytecode or sys.pycache_prefix is not None:
        return
    # torch has the most source: its bytecode stands for that of all packages.
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.cached is None or Path(torch.cached).exists():
        return
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(cache) / "orchestrator" / "bytecode"
    if not folder.is_absolute():  # the user has no home folder
        return
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.access(folder, os.W_OK):
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(folder)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
