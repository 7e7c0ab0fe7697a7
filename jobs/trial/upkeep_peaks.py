"""Memory outside the measured steps: the longest rows together, an evaluation, a checkpoint."""

import functools
import itertools
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from jobs import errors
from jobs.flags import Flag, FlagKind, flag_columns, flags_of
from jobs.loops.contract import Setup, Trained
from jobs.record import Outcome
from jobs.spec import TrialSpec, UpkeepSpec
from jobs.trackers import RaggedData, Tracker
from jobs.trackers.host import peak_resident_bytes, restart_peak
from jobs.trial.data import RowLengths


def train_worst_batch(
    trained: Trained, lengths: RowLengths, trackers: Sequence[Tracker], spec: TrialSpec
) -> None:
    """Train one more optimizer step, on the rows that take the most memory; it may fail."""
    from jobs.loops.meter import WorstStep

    rows = lengths.worst_micro_batches(spec.micro_batch, spec.accumulation)
    if len(rows) == spec.accumulation:
        # Accelerate fetches one more micro-batch ahead, whose tensors are on the device, too.
        rows.append(rows[0])
    trained.train_rows(rows, WorstStep(trackers))


def with_worst_batch(values: Mapping[str, Any], trackers: Sequence[Tracker]) -> dict[str, Any]:
    """On a CPU, the peaks with and without the worst batch; otherwise ``values`` as they are."""
    worst = RaggedData.among(trackers).cpu_step_peak_bytes()
    typical = values.get("cpu_step_peak_bytes")
    if worst is None or typical is None:
        return dict(values)
    changed = {**values, "cpu_step_peak_bytes": max(worst, typical)}
    if "persistent_bytes" in values:
        # As for peak_allocated_bytes: what lives between steps, and what one step adds.
        changed["typical_peak_allocated_bytes"] = values["persistent_bytes"] + typical
    return changed


Action = tuple[str, Callable[[], Any]]
"""What is measured: the name in its columns, and a function that does it."""


def actions(
    trained: Trained, setup: Setup, lengths: RowLengths | None, upkeep: UpkeepSpec
) -> Iterator[Action]:
    """What a trial does after its training, in this order."""
    if trained.evaluate is not None:
        rows = _evaluated_rows(setup, lengths, upkeep.compute_metrics_rows)
        keeps_logits = upkeep.compute_metrics_rows is not None
        yield "evaluate", functools.partial(trained.evaluate, rows, keeps_logits)
    if trained.save is not None:
        yield "save", trained.save
    if upkeep.load_best and trained.load_best is not None:
        yield "load_best", trained.load_best
    if upkeep.resume and trained.resume is not None:
        yield "resume", trained.resume
    if upkeep.merge:
        model = trained.accelerator.unwrap_model(trained.model)
        # A trial without an adapter has nothing to merge.
        if hasattr(model, "merge_and_unload"):
            yield "merge", model.merge_and_unload


def _evaluated_rows(setup: Setup, lengths: RowLengths | None, wanted: int | None) -> list[int]:
    """Rows of two batches with the longest last; before them others, again if need be, if more are
    ``wanted``."""
    # Two batches: the second one runs with the memory that the first one left.
    size = setup.arguments.eval_batch_size
    rows = list(range(min(len(setup.dataset), 2 * size)))
    if lengths is not None:
        rows = [row for batch in lengths.worst_micro_batches(size, 2) for row in batch]
    if wanted is None:
        return rows
    others = itertools.islice(itertools.cycle(range(len(setup.dataset))), wanted)
    return [*others, *rows][-wanted:]


def measure(
    measured_actions: Iterator[Action], values: dict[str, Any], enter: Callable[[str], None]
) -> dict[str, Any]:
    """``values`` with the peaks of each action, which is a phase of its own. Raises what runs out
    of memory, as a training would. Any other error becomes a flag."""
    flags = list(flags_of(values))
    for name, act in measured_actions:
        enter(name)
        figures = _peaks(name, act)
        values = {**values, **figures}
        if not figures:
            flags.append(Flag(FlagKind(f"cannot_{name}")))
    return {**values, **flag_columns(flags)}


def _peaks(name: str, act: Callable[[], Any]) -> dict[str, Any]:
    """The columns of one action; none if it fails. Raises errors of memory."""
    has_gpu = torch.cuda.is_initialized()
    if has_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    restart_peak()
    begin = time.perf_counter()
    try:
        act()
    except Exception as error:
        outcome, _, _ = errors.classify(error)
        if outcome in (Outcome.OUT_OF_MEMORY, Outcome.HOST_OUT_OF_MEMORY):
            raise
        traceback.print_exc()
        return {}
    figures = {f"peak_{name}_host_bytes": peak_resident_bytes()}
    if has_gpu:
        torch.cuda.synchronize()
        # Without CUDA there is no allocator that counts.
        figures[f"peak_{name}_allocated_bytes"] = torch.cuda.max_memory_allocated()
        figures[f"peak_{name}_reserved_bytes"] = torch.cuda.max_memory_reserved()
    return {**figures, f"{name}_seconds": time.perf_counter() - begin}
