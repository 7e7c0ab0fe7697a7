"""Builds DeepSpeed ops before any timing: ``python -m jobs.isolation.build_ops OP...``."""

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from jobs.node.checks.installed import unheld_build_locks


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
        builder = ALL_OPS.get(op)
        if builder is None:  # this DeepSpeed does not have it: its trials are unsupported
            continue
        begin = time.perf_counter()
        try:
            builder.load(verbose=False)  # builds the op if this node has not built it
        except Exception as error:  # compilers' failures have no common type
            costs[op] = (str(error).strip() or type(error).__name__).splitlines()[-1]
        else:
            costs[op] = time.perf_counter() - begin
    return costs


def remove_abandoned_locks(begun_since: float = math.inf) -> None:
    """Remove the locks of builds that were killed: later builds of the op would wait for ever.
    Another node that shares the folder may be building. So a lock must be older than any build
    takes, or made since ``begun_since``, the Unix time when a killed trial began."""
    for lock in map(Path, unheld_build_locks()):
        with contextlib.suppress(FileNotFoundError):  # the build has just finished
            made_at = lock.stat().st_mtime
            # No build of an op takes 15 minutes.
            if made_at >= begun_since or time.time() - made_at > 900.0:
                lock.unlink()


if __name__ == "__main__":
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what compilers print must not mix with the reply
    output.write(json.dumps(build(sys.argv[1:])))
    output.flush()
