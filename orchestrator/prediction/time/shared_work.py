"""What a rank computes and exchanges in a step that several GPUs share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jobs.spec import TrialSpec
from orchestrator.prediction.kernel_memory import FLOAT_BYTES
from orchestrator.prediction.time.operations import (
    COLLECTIVES,
    OPTIMIZER,
    UPDATES,
    Operation,
    Sharing,
    StepWork,
    Work,
)
from orchestrator.prediction.time.step_work import PartWork

if TYPE_CHECKING:
    import torch

    from orchestrator.prediction.zero import ZeroEngine

_DOUBLE = 2 * FLOAT_BYTES
_HALF = 2
"""Bytes of a 16-bit weight or gradient, which DeepSpeed exchanges."""


def parts_of_ranks(
    spec: TrialSpec, first: PartWork, later: PartWork | None
) -> tuple[PartWork, PartWork | None]:
    """A step's first micro-batch and any later one, from those that were traced.

    Of FSDP2, ``later`` was traced as a whole step of two micro-batches. DDP exchanges in the last
    micro-batch alone.
    """
    if later is None or spec.settings.deepspeed is not None:
        return first, later
    if spec.settings.training_arguments.get("fsdp"):
        return first, later + first * -1
    return first, replace(later, eager=_split(later.eager)[0], compiled=_split(later.compiled)[0])


def shared_step(spec: TrialSpec, step: StepWork) -> StepWork:
    """The step whose kernels and collective operations are kept apart."""
    exchanged = _split(step.work)[1]
    zero = (spec.settings.deepspeed or {}).get("zero_optimization")
    calls = exchanged.launches()
    hooks = {"fsdp2": calls} if spec.settings.training_arguments.get("fsdp") else {}
    if zero is not None:
        hooks = {f"zero{zero['stage']}": step.work.launches(*UPDATES) * spec.accumulation}
    return replace(
        step,
        eager=_split(step.eager)[0],
        compiled=_split(step.compiled)[0],
        sharing=Sharing(
            ranks=spec.world_size,
            exchanged=exchanged,
            # DeepSpeed's own default: only stage 3 has a stream for it.
            overlaps=zero is None or zero["stage"] == 3,
            hooks=hooks,
        ),
    )


def _split(work: Work) -> tuple[Work, Work]:
    """The kernels, and the collective operations."""
    exchanged = {kind: rows for kind, rows in work.by_kind.items() if kind in COLLECTIVES}
    computed = {kind: rows for kind, rows in work.by_kind.items() if kind not in COLLECTIVES}
    return replace(work, by_kind=computed), Work(by_kind=exchanged)


def zero_update(
    spec: TrialSpec, engine: ZeroEngine, parameters: Sequence[torch.nn.Parameter], update: Work
) -> Work:
    """DeepSpeed's ``update`` of a rank's part with the copies of its engine and all that it
    exchanges.

    Source: deepspeed/runtime/zero/stage_1_and_2.py and stage3.py. Each gradient is copied to a
    bucket. Stages 1 and 2 reduce whole buckets, which they flatten and divide, and gather what was
    updated. Stage 3 gathers the parameters of each module before both passes, and scatters the sums
    of gradients.
    """
    elements = [own.numel() for own in parameters if own.requires_grad]
    updated = sum(elements) // engine.ranks
    operations = [
        *(_moved(OPTIMIZER, 2 * _HALF * own) for own in elements),
        # The norm, in 64 bits; a flat copy; clipped in 32 bits; the weights that the model has.
        _moved(OPTIMIZER, updated * (_HALF + 2 * _DOUBLE)),
        _moved(OPTIMIZER, updated * 2 * (_HALF + FLOAT_BYTES)),
        _moved(OPTIMIZER, updated * _HALF),
    ]
    reductions = 1 if engine.stage == 1 else spec.accumulation
    exchanged = Work.of(list(_reductions(engine, elements))) * reductions
    if engine.stage < 3:
        gathered = Work.of([_moved("all-gather", _HALF * sum(elements))])
        copied = 2 * _HALF * (2 * sum(elements) + updated)
        operations.append(_moved(OPTIMIZER, copied * reductions))
    else:
        every = [_moved("all-gather", _HALF * own.numel()) for own in parameters]
        gathered = Work.of(every) * (2 * spec.accumulation)
    return Work.of(operations) + update + exchanged + gathered


def _reductions(engine: ZeroEngine, elements: Sequence[int]) -> Iterator[Operation]:
    kind = "all-reduce" if engine.stage < 3 else "reduce-scatter"
    buckets = -(-sum(elements) // engine.bucket_elements)
    for _ in range(buckets):
        yield _moved(kind, _HALF * sum(elements) // buckets)


def _moved(kind: str, nbytes: int) -> Operation:
    return Operation(kind=kind, writes=((0, nbytes),))
