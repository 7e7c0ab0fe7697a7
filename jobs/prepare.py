"""One-time costs, paid before any timing: ``python -m jobs.prepare OP...`` builds DeepSpeed ops for this node."""

from __future__ import annotations

import json
import os
import sys
import time


def build(ops: list[str]) -> dict[str, float | str]:
    """Seconds to build or load each op on this node; an op that cannot be built has its error's last line instead."""
    import torch

    from jobs.loops.deepspeed import use_own_architecture

    use_own_architecture()
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
        except Exception as error:  # a compiler's failure has no type of its own; the trials will be unsupported
            costs[op] = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
    return costs


if __name__ == "__main__":
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    output.write(json.dumps(build(sys.argv[1:])))
    output.flush()
