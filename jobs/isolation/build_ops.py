"""One-time costs, paid before any timing: ``python -m jobs.isolation.build_ops OP...`` builds DeepSpeed ops for this node."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from pathlib import Path

_LONGEST_BUILD_SECONDS = 900.0


def build(ops: list[str]) -> dict[str, float | str]:
    """Seconds to build or load each op on this node; an op that cannot be built has its error's last line instead."""
    import torch

    from jobs.loops.deepspeed import use_own_architecture

    use_own_architecture()
    remove_abandoned_locks()
    from deepspeed.ops.op_builder.all_ops import ALL_OPS

    if not torch.cuda.is_available():
        ops = ["deepspeed_shm_comm", *ops]  # every ZeRO stage communicates through it on the CPU
    costs: dict[str, float | str] = {}
    for op in ops:
        begin = time.perf_counter()
        builder = ALL_OPS.get(op)
        if builder is None:
            continue
        try:
            builder.load(verbose=False)
            costs[op] = time.perf_counter() - begin
        except (
            Exception
        ) as error:  # a compiler's failure has no type of its own; the trials will be unsupported
            costs[op] = (
                str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
            )
    return costs


def remove_abandoned_locks(begun_since: float = math.inf) -> None:
    """Remove the locks of builds that were killed: whoever loads the op next would wait for them for ever.

    Whoever builds keeps the lock's file open (``torch.utils.file_baton``). One that nobody here has open may still be
    another node's, where the folder is shared: unless it is older than any build, or was begun (Unix time) while a
    trial ran that is known to have been killed.
    """
    from torch.utils.cpp_extension import get_default_build_root

    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root())
    for lock in (*root.glob("*/lock"), *root.glob("*/*/lock")):
        with contextlib.suppress(FileNotFoundError):  # whoever built has just finished
            begun = lock.stat().st_mtime
            if (
                begun >= begun_since or time.time() - begun > _LONGEST_BUILD_SECONDS
            ) and not _is_open(lock):
                lock.unlink()


def _is_open(file: Path) -> bool:
    """Whether any process that may be looked at has the file open."""
    wanted = str(file.resolve())
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if os.readlink(descriptor) == wanted:
                return True
    return False


if __name__ == "__main__":
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    output.write(json.dumps(build(sys.argv[1:])))
    output.flush()
