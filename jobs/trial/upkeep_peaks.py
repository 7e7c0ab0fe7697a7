"""Memory outside the training step: the peaks of an evaluation and of saving a checkpoint."""

from __future__ import annotations

import functools
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from jobs import errors
from jobs.flags import Flag, FlagKind, flag_columns, flags_of
from jobs.record import Outcome

if TYPE_CHECKING:
    from jobs.loops.base import Setup, Trained
    from jobs.trial.data import RowLengths

_BATCHES = 2
"""Batches of the evaluation: the second one runs with the memory that the first one left."""


def measure(
    trained: Trained, setup: Setup, lengths: RowLengths | None, values: dict[str, Any]
) -> dict[str, Any]:
    """``values`` with the peaks of an evaluation and of a checkpoint, after everything else.

    The evaluation has the batch size of the user's arguments, on the longest rows, and keeps no
    logits beyond a batch: the Trainer keeps them only for a ``compute_metrics``. Raises what runs
    out of memory, because a training would, too. Any other error becomes a flag.
    """
    flags = list(flags_of(values))
    measured: dict[str, Any] = {}
    for name, act, impossible in _actions(trained, _rows(setup, lengths)):
        figures = _peaks(name, act)
        if figures is None:
            flags.append(Flag(impossible))
        else:
            measured |= figures
    return {**values, **measured, **flag_columns(flags)}


def _actions(
    trained: Trained, rows: Sequence[int]
) -> Iterator[tuple[str, Callable[[], None], FlagKind]]:
    """What is done, its name in the columns, and the flag that says that it is impossible."""
    if trained.evaluate is not None:
        evaluate = functools.partial(trained.evaluate, rows)
        yield "evaluate", evaluate, FlagKind.CANNOT_EVALUATE
    if trained.save is not None:
        yield "save", trained.save, FlagKind.CANNOT_SAVE


def _rows(setup: Setup, lengths: RowLengths | None) -> list[int]:
    """The rows to evaluate on: the longest, or the first ones where all are equally long."""
    size = setup.arguments.eval_batch_size
    if lengths is None:
        return list(range(min(len(setup.dataset), _BATCHES * size)))
    rows: list[int] = []
    for batch in lengths.worst_micro_batches(size, _BATCHES):
        rows += batch
    return rows


def _peaks(name: str, act: Callable[[], None]) -> dict[str, Any] | None:
    """The columns of one action; None if it fails. Raises errors of memory."""
    has_gpu = torch.cuda.is_initialized()
    if has_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    if not _succeeds(act):
        return None
    figures: dict[str, Any] = {}
    if has_gpu:
        torch.cuda.synchronize()
        # Without CUDA there is no allocator that counts.
        figures[f"peak_{name}_allocated_bytes"] = torch.cuda.max_memory_allocated()
        figures[f"peak_{name}_reserved_bytes"] = torch.cuda.max_memory_reserved()
    return {**figures, f"{name}_seconds": time.perf_counter() - begin}


def _succeeds(act: Callable[[], None]) -> bool:
    """Run the action; returns whether it raised no error. Re-raises errors of memory."""
    try:
        act()
    except Exception as error:
        outcome, _, _ = errors.classify(error)
        if outcome in (Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY):
            raise
        traceback.print_exc()
        return False
    return True
