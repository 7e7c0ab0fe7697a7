"""What the kernel does with this process when its parent ends (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal

_LIBC = ctypes.CDLL(None)


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, whose process id is ``parent``."""
    _LIBC.prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
    if os.getppid() != parent:  # the parent ended before the kernel was asked
        os._exit(1)


def continue_without_owner() -> None:
    """Have the kernel continue this process when its parent ends, so that it can end, too."""
    _LIBC.prctl(1, signal.SIGCONT)  # 1 is PR_SET_PDEATHSIG
