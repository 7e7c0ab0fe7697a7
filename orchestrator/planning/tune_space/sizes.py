"""The micro-batches that ``tune`` tries."""

from __future__ import annotations

LARGEST = 1024
"""The largest micro-batch on a GPU."""
LARGEST_WITHOUT_GPU = 32
"""The largest micro-batch without a GPU."""
STEPS_PER_OCTAVE = (8, 4, 2, 1)
"""Possible numbers of micro-batches from one power of two to the next, the largest first."""


def micro_batches(largest: int, per_octave: int) -> list[int]:
    """Integers from 1, evenly spaced in each octave: 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16 ...

    ``per_octave`` is a power of two.
    """
    sizes = []
    power = 1
    while power <= largest:
        step = max(1, power // per_octave)
        sizes += [size for size in range(power, 2 * power, step) if size <= largest]
        power *= 2
    return sizes


def divisors(effective_batch: int, largest: int) -> list[int]:
    """The micro-batches that divide the effective batch, up to ``largest``."""
    most = min(effective_batch, largest)
    return [size for size in range(1, most + 1) if effective_batch % size == 0]
