"""What a compiler makes of a step's kernels: elementwise ones between two others become one."""

import itertools
from collections.abc import Container, Iterable, Iterator, Sequence

from orchestrator.prediction.time.operations import Operation

_FUSED = frozenset({"elementwise", "reductions", "copies", "loss"})
"""Kinds of operations that Inductor fuses."""


Accesses = dict[int, int]
"""Storage -> the bytes of it that are read or written."""


def fused(
    operations: Sequence[Operation], kept: Iterable[int]
) -> tuple[list[Operation], dict[int, Accesses]]:
    """The kernels of a compiled micro-batch, and for each storage that none of them writes those
    from which it is computed; ``kept`` are storages that outlive the micro-batch.

    A value is written to memory if a product or attention reads it, or another kernel of its own
    pass. Whatever else the backward pass needs, it computes again from values that were written:
    the partition of AOTAutograd (torch/_functorch/partitioners.py) saves nothing that is cheap.
    """
    runs = [(own, list(group)) for own, group in itertools.groupby(operations, _run_of)]
    written = {*_written(runs), *kept}
    sources: dict[int, Accesses] = {}
    kernels: list[Operation] = []
    for (is_fused, _), group in runs:
        kernels += [_joined(group, written, sources)] if is_fused else group
    return kernels, sources


def _joined(
    group: Sequence[Operation], written: Container[int], sources: dict[int, Accesses]
) -> Operation:
    """The kernel of a run. ``sources`` has for each storage that is not written those from which it
    is computed again."""
    reads: Accesses = {}
    writes: Accesses = {}
    for own in group:
        needed: Accesses = {}
        for number, nbytes in own.reads:
            needed.update(sources.get(number, {number: nbytes}))
        reads |= {number: nbytes for number, nbytes in needed.items() if number not in writes}
        for number, nbytes in own.writes:
            if number in written:
                sources.pop(number, None)
                writes[number] = nbytes
            else:
                sources[number] = needed
    all_reads, all_writes = tuple(reads.items()), tuple(writes.items())
    return group[0]._replace(kind="fused", reads=all_reads, writes=all_writes)


_Run = tuple[tuple[bool, str], list[Operation]]


def _run_of(own: Operation) -> tuple[bool, str]:
    """Equal for neighbours that become one kernel."""
    return own.kind in _FUSED, own.phase


def _written(runs: Sequence[_Run]) -> Iterator[int]:
    """Storages that another kernel of the same pass reads, or a product or attention."""
    made: dict[int, tuple[int, str]] = {}
    for number, ((is_fused, phase), group) in enumerate(runs):
        for own in group:
            for storage, _ in own.reads:
                its_run, its_phase = made.get(storage, (number, phase))
                if not is_fused or (its_phase == phase and its_run != number):
                    yield storage
            made.update((storage, (number, phase)) for storage, _ in own.writes)
            if not is_fused:
                yield from (storage for storage, _ in own.writes)
