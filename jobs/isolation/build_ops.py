"""Builds DeepSpeed ops before any timing: ``python -m jobs.isolation.build_ops OP...``.

Prints a JSON object: op -> seconds to build or load it, or the error's last line.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_LONGEST_BUILD_SECONDS = 900.0
"""No build of an op takes this long."""


def build(ops: Sequence[str]) -> dict[str, float | str]:
    """Op -> seconds to build or load it on this node, or the last line of its error."""
    import torch

    from jobs.loops.deepspeed import build_for_own_gpu

    build_for_own_gpu()
    remove_abandoned_locks()
    from deepspeed.ops.op_builder.all_ops import ALL_OPS

    if not torch.cuda.is_available():
        ops = ["deepspeed_shm_comm", *ops]  # on a CPU every ZeRO stage communicates through it
    costs: dict[str, float | str] = {}
    for op in ops:
        # An op that this DeepSpeed does not have is left out: its trials are unsupported.
        builder = ALL_OPS.get(op)
        if builder is None:
            continue
        # Loading builds the op if it has not been built on this node.
        begin = time.perf_counter()
        try:
            builder.load(verbose=False)
        except Exception as error:  # compilers' failures have no common type
            costs[op] = _last_line(error)
        else:
            costs[op] = time.perf_counter() - begin
    return costs


def _last_line(error: Exception) -> str:
    """The last line of an error's text; its class if it has no text."""
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    return lines[-1]


def remove_abandoned_locks(begun_since: float = math.inf) -> None:
    """Remove the locks of builds that were killed: later builds of the op would wait for ever.

    A running build keeps its lock file open (``torch.utils.file_baton``). If no process here has
    the lock open, its build may still run on another node that shares the folder. So a lock is
    removed only if it is older than any build takes, or if it was made since ``begun_since``. That
    is the Unix time when a trial began that is known to have been killed.
    """
    for lock in _lock_files():
        with contextlib.suppress(FileNotFoundError):  # the build has just finished
            made_at = lock.stat().st_mtime
            is_too_old = time.time() - made_at > _LONGEST_BUILD_SECONDS
            is_of_killed_trial = made_at >= begun_since
            if (is_too_old or is_of_killed_trial) and not _is_open(lock):
                lock.unlink()


def _lock_files() -> Iterator[Path]:
    from torch.utils.cpp_extension import get_default_build_root

    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root())
    yield from root.glob("*/lock")
    yield from root.glob("*/*/lock")


def _is_open(file: Path) -> bool:
    """Whether any process that this one may inspect has the file open."""
    path = str(file.resolve())
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
            if os.readlink(descriptor) == path:
                return True
    return False


def main() -> None:
    """Build the ops on the command line and print their costs."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what compilers print must not mix with the reply
    output.write(json.dumps(build(sys.argv[1:])))
    output.flush()


if __name__ == "__main__":
    main()
