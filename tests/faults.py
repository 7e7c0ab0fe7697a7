"""Faults for a trial to have, as hooks of its recipe at the place "model": each ends or hangs the trial's process."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from jobs.spec import TrialSpec


def with_fault(spec: TrialSpec, name: str, **arguments: Any) -> TrialSpec:
    """The same trial with a fault of this file; ``arguments`` are the fault's own keyword arguments."""
    hooks = {**spec.recipe.hooks, "model": (f"tests.faults:{name}", arguments)}
    return replace(spec, recipe=replace(spec.recipe, hooks=hooks))


def hang(model: Any, task: str, arguments: Any) -> NoReturn:
    """Never come back."""
    while True:
        time.sleep(60)


def hang_once(model: Any, task: str, arguments: Any, *, marker: str) -> Any:
    """Hang the first time, leaving ``marker`` behind; come back unharmed every other time."""
    if Path(marker).exists():
        return model
    Path(marker).touch()
    hang(model, task, arguments)


def hang_with_stubborn_grandchild(model: Any, task: str, arguments: Any, *, pid_file: str) -> NoReturn:
    """Hang, and leave a process of one's own that ignores SIGTERM; its id is in ``pid_file`` once it runs."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        partial = Path(f"{pid_file}.partial")
        partial.write_text(str(os.getpid()))
        partial.rename(pid_file)
    hang(model, task, arguments)


def kill(model: Any, task: str, arguments: Any) -> None:
    """Be killed by the outside world."""
    os.kill(os.getpid(), signal.SIGKILL)


def segfault(model: Any, task: str, arguments: Any) -> None:
    """Read memory that is not there."""
    ctypes.string_at(0)


def abort(model: Any, task: str, arguments: Any) -> NoReturn:
    """End as a failed assertion of a C++ library does."""
    os.abort()


def raise_error(model: Any, task: str, arguments: Any) -> NoReturn:
    """An exception that nobody has a name for."""
    raise ValueError("the fault that was asked for")


def raise_memory_error(model: Any, task: str, arguments: Any) -> NoReturn:
    """The host has no memory left."""
    raise MemoryError("no host memory left")


def exit_silently(model: Any, task: str, arguments: Any) -> NoReturn:
    """End without a word."""
    os._exit(3)
