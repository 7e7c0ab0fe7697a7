"""Memory outside the training step: the peaks of an evaluation and of saving a checkpoint."""

import functools
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

from jobs import errors
from jobs.flags import Flag, FlagKind, flag_columns, flags_of
from jobs.loops.contract import Setup, Trained
from jobs.record import Outcome
from jobs.trial.data import RowLengths


def measure(
    trained: Trained, setup: Setup, lengths: RowLengths | None, values: dict[str, Any]
) -> dict[str, Any]:
    """``values`` with the peaks of an evaluation and of a checkpoint, after everything else.

    Raises what runs out of memory, as a training would. Any other error becomes a flag.
    """
    # Two batches: the second one runs with the memory that the first one left.
    size = setup.arguments.eval_batch_size
    rows = list(range(min(len(setup.dataset), 2 * size)))
    if lengths is not None:
        rows = [row for batch in lengths.worst_micro_batches(size, 2) for row in batch]
    evaluate = trained.evaluate and functools.partial(trained.evaluate, rows)
    flags = list(flags_of(values))
    measured: dict[str, Any] = {}
    for name, act, kind in (
        ("evaluate", evaluate, FlagKind.CANNOT_EVALUATE),
        ("save", trained.save, FlagKind.CANNOT_SAVE),
    ):
        if act is not None:
            figures = _peaks(name, act)
            measured |= figures
            if not figures:
                flags.append(Flag(kind))
    return {**values, **measured, **flag_columns(flags)}


def _peaks(name: str, act: Callable[[], None]) -> dict[str, Any]:
    """The columns of one action; none if it fails. Raises errors of memory."""
    has_gpu = torch.cuda.is_initialized()
    if has_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    try:
        act()
    except Exception as error:
        outcome, _, _ = errors.classify(error)
        if outcome in (Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY):
            raise
        traceback.print_exc()
        return {}
    figures: dict[str, Any] = {}
    if has_gpu:
        torch.cuda.synchronize()
        # Without CUDA there is no allocator that counts.
        figures[f"peak_{name}_allocated_bytes"] = torch.cuda.max_memory_allocated()
        figures[f"peak_{name}_reserved_bytes"] = torch.cuda.max_memory_reserved()
    return {**figures, f"{name}_seconds": time.perf_counter() - begin}
