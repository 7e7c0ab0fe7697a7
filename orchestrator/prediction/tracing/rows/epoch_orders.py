"""Micro-batches of rows of unequal length, in the order in which an epoch or a trial has them."""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import RandomSampler
from transformers.trainer_pt_utils import LengthGroupedSampler

from jobs.loops.row_order import measured_rows
from jobs.spec import TrialSpec
from jobs.trial.assembly import ragged_steps
from jobs.trial.data import Collator, RowLengths
from orchestrator.prediction.streams.length_streams import MANY_TILES
from orchestrator.prediction.tracing.rows.batches import Shape, distinct_columns

Steps = list[list[Shape]]
"""The micro-batches of each optimizer step."""
_MOST = 100
"""So many micro-batches of an epoch are replayed in order, and then those longer than all before.
Nine whole epochs of up to 1,024 steps (a 1.2 B decoder, configs/batching.yaml in three orders) were
replayed: after the first of the longest batches, none reserved another 0.1 GB."""
_AFTER_LONGEST = 20
"""So many follow the first of the longest ones."""
_ORDERS = 3
"""Orders of an epoch's rows that are replayed: memory is fragmented in another way by each."""
_UNKNOWN_ORDERS = 16
"""So many if a training's order is not known, because few take the most. A decoder with rows
grouped by length took 7 % more than one order said (docs/benchmarks.md)."""


def is_known(spec: TrialSpec) -> bool:
    """Whether the seed alone says in which order an epoch has its rows. Rows that are grouped by
    length are drawn by PyTorch's own generator, from which the model's weights were drawn, too."""
    return spec.settings.training_arguments.get("train_sampling_strategy") != "group_by_length"


def orders(
    spec: TrialSpec, lengths: RowLengths, collate: Collator, joins_rows: bool
) -> list[Steps]:
    """An epoch in the order of its seed, and in others."""
    rows = (spec, lengths, collate)
    count = _ORDERS if is_known(spec) else _UNKNOWN_ORDERS
    found = [epoch(*rows, spec.measure.seed + number) for number in range(count)]
    if joins_rows:
        # Every epoch meets the longest row, but few meet all of the longest in one batch.
        found.insert(0, [*found[0], *worst(*rows)])
    return found


def epoch(spec: TrialSpec, lengths: RowLengths, collate: Collator, seed: int) -> Steps:
    """The steps of the epoch that a training with this seed begins with, until its memory grows no
    more. The last, short step is left out."""
    return _plateau(_shapes(spec, lengths, collate, _rows(spec, lengths, seed)))


class Usual(NamedTuple):
    """Of an epoch's steps, in the mean."""

    rows: float
    """How many of the longest rows have as many positions as a micro-batch."""
    seen: float
    """The length of the row of a position, as a share of the longest."""
    new_shapes: float
    """Micro-batches of a step that have a shape which none before had."""


def usual(spec: TrialSpec, lengths: RowLengths, collate: Collator) -> Usual:
    rows = _rows(spec, lengths, spec.measure.seed)
    steps = ragged_steps(spec, lengths, collate, spec.measure.warmup_steps)
    # Few rows are repeated to a whole step.
    steps.rows(rows * -(-spec.effective_batch // len(rows)))
    widths, squares, *_ = steps.mean_step.tolist()
    # Both are sums over columns.
    longest = [float(own.max()) for own in lengths.by_column.values()]
    return Usual(
        rows=widths / spec.accumulation / sum(longest),
        seen=squares / widths / statistics.mean(longest),
        new_shapes=steps.new_shapes_of_mean_step,
    )


def _rows(spec: TrialSpec, lengths: RowLengths, seed: int) -> list[int]:
    """The rows of an epoch, in the order of a training with this seed."""
    sampler = _sampler(spec, lengths)
    if isinstance(sampler, RandomSampler):
        # Accelerate draws all rows anew, from a generator with the training's seed.
        generator = torch.Generator().manual_seed(seed)
        return torch.randperm(len(sampler), generator=generator).tolist()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return list(sampler)


def trial(spec: TrialSpec, lengths: RowLengths, collate: Collator) -> Steps:
    """The steps of a trial until none is new, and then that on the longest rows."""
    steps = ragged_steps(spec, lengths, collate, spec.measure.warmup_steps)
    rows = measured_rows(_sampler(spec, lengths), steps, spec.measure.seed)
    if not steps.distinct:
        trained = epoch(spec, lengths, collate, spec.measure.seed)
    else:
        # After the warm-up come two turns of the same steps: the second one shows what the first
        # left in the cache.
        count = (steps.warmup_steps + 2 * steps.distinct) * spec.effective_batch
        trained = _shapes(spec, lengths, collate, rows[:count])
    return trained + worst(spec, lengths, collate)


def worst(spec: TrialSpec, lengths: RowLengths, collate: Collator) -> Steps:
    """The step on the longest rows."""
    batches = lengths.worst_micro_batches(spec.micro_batch, spec.accumulation)
    return _shapes(spec, lengths, collate, [row for own in batches for row in own])


def _plateau(steps: Steps) -> Steps:
    """The first steps of an epoch, and of the others each that is longer than all before it, or
    than all before that are padded, if it is."""
    if not steps:
        return []
    sizes = [max((own.is_padded, sum(own.lengths)) for own in step) for step in steps]
    # A mask takes memory of its own, so the longest padded step may take more than the longest. The
    # first step has no optimizer states yet.
    most = dict(sorted(sizes[1:]))
    last = max((sizes.index(size, 1) for size in most.items()), default=0)
    end = min(-(-_MOST // len(steps[0])), last + _AFTER_LONGEST)
    kept, longest = steps[:end], dict(sorted(sizes[1:end]))
    for step, (is_padded, size) in zip(steps[end:], sizes[end:], strict=True):
        if size > longest.get(is_padded, 0):
            longest[is_padded] = size
            kept.append(step)
    return kept


def _sampler(spec: TrialSpec, lengths: RowLengths) -> Any:
    if is_known(spec):
        return RandomSampler(range(len(lengths.tokens)))
    return LengthGroupedSampler(spec.effective_batch, lengths=lengths.sequences[0].tolist())


def _shapes(spec: TrialSpec, lengths: RowLengths, collate: Collator, rows: Sequence[int]) -> Steps:
    """The shapes of all full steps of these rows."""
    full = len(rows) // spec.effective_batch * spec.effective_batch
    numbered = distinct_columns(lengths).values()
    distinct = dict(zip(numbered, lengths.by_column.values(), strict=True))
    columns = np.stack(list(distinct.values()))
    numbers = np.array(rows[:full], int).reshape(-1, spec.accumulation, spec.micro_batch)
    numbers %= columns.shape[1]
    of_rows = columns[:, numbers]
    widths = ragged_steps(spec, lengths, collate, spec.measure.warmup_steps).shapes(of_rows)
    is_padded = (of_rows[0] < widths[0][..., None]).any(axis=-1)
    is_padded &= not getattr(collate, "flattens_rows", False)
    tiles = np.zeros_like(is_padded, int)
    if lengths.labels is not None:
        scored = lengths.labels[numbers].sum(axis=-1)
        widths = np.concatenate([widths, scored[None]])
        tiles = (-(-scored // lengths.tile)).clip(1, MANY_TILES)
    return _steps(spec.micro_batch, is_padded, widths.transpose(1, 2, 0), tiles)


def _steps(rows: int, *of_batches: np.ndarray) -> Steps:
    """The shapes of micro-batches, by whether each is padded, its lengths and its tiles."""
    return [
        [
            Shape(rows, is_padded, tuple(own), tiles)
            for is_padded, own, tiles in zip(*step, strict=True)
        ]
        for step in zip(*(own.tolist() for own in of_batches), strict=True)
    ]
