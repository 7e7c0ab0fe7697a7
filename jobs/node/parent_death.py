"""What the kernel does with this process when its parent ends (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal

_LIBC = ctypes.CDLL(None)


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends: no orphan may hold the GPU.

    ``parent`` is the parent's process id. A stopped process ends, too, and an executed program.
    """
    _LIBC.prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
    if os.getppid() != parent:  # the parent ended before the kernel was asked
        os._exit(1)


def continue_without_owner() -> None:
    """If this process is stopped when its parent ends, have the kernel continue it.

    It then finds its input closed, and ends. Otherwise its children would stay on the GPU.
    """
    _LIBC.prctl(1, signal.SIGCONT)  # 1 is PR_SET_PDEATHSIG
