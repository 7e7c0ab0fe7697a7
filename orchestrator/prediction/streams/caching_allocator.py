"""Simulates the byte counts of PyTorch's CUDA caching allocator: rounding, pools and segments."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from orchestrator.units import MIB

# c10/core/AllocatorConfig.h and c10/cuda/CUDACachingAllocator.cpp, default settings, torch 2.11 to
# 2.13.
MIN_BLOCK = 512
SMALL_SIZE = 2**20


class Block:
    """Part of a segment of device memory, linked to the blocks before and after it."""

    __slots__ = ("address", "free", "next", "pool", "previous", "size")

    def __init__(self, address: int, size: int, pool: Pool) -> None:
        self.address = address
        self.size = size
        self.pool = pool
        self.free = True
        self.previous: Block | None = None
        self.next: Block | None = None

    @property
    def is_segment(self) -> bool:
        return self.previous is None and self.next is None


@dataclass(slots=True)
class Pool:
    """Free blocks, which only requests of one stream get that are as small or as large."""

    least_rest: int
    """A larger block is split if at least so many bytes remain: ``should_split`` in
    CUDACachingAllocator.cpp."""
    free: list[tuple[int, int, Block]] = field(default_factory=list)
    """Their (size, address, block), sorted."""


@dataclass(slots=True)
class CachingAllocator:
    """The allocator of one device.

    ``allocated`` counts whole blocks, as ``torch.cuda.memory_allocated`` does. A request takes the
    smallest cached block that holds it, of equal ones that with the lowest address. Segments come
    from the device without limit. Each lies at a lower address than the one before, as recorded
    peaks show; with ``upwards`` at a higher one.
    """

    upwards: bool = False
    allocated: int = 0
    reserved: int = 0
    peak_reserved: int = 0
    opened: int = 0
    """Bytes of all segments so far, of which addresses are made."""
    peak_allocated: int = 0
    pools: dict[tuple[int, bool], Pool] = field(default_factory=dict)
    """By stream, and whether the requests are small."""

    def allocate(self, nbytes: int, stream: int = 0) -> Block:
        """A block for a tensor of ``nbytes``, which are not 0: an empty tensor takes no memory."""
        size = -(-nbytes // MIN_BLOCK) * MIN_BLOCK  # ``rounded``, without a call
        is_small = size <= SMALL_SIZE
        pool = self.pools.get((stream, is_small))
        if pool is None:
            pool = Pool(MIN_BLOCK if is_small else SMALL_SIZE + 1)
            self.pools[stream, is_small] = pool
        free = pool.free
        index = bisect_left(free, (size,))
        block = free.pop(index)[2] if index < len(free) else self._segment(size, pool)
        remaining = block.size - size
        if remaining >= pool.least_rest:
            rest = Block(block.address + size, remaining, pool)
            rest.previous, rest.next = block, block.next
            if block.next is not None:
                block.next.previous = rest
            block.next, block.size = rest, size
            insort(free, (remaining, rest.address, rest))
        block.free = False
        self.allocated += block.size
        if self.allocated > self.peak_allocated:
            self.peak_allocated = self.allocated
        return block

    def free(self, block: Block) -> None:
        """Give a block back to its pool, merged with free neighbours of its segment."""
        self.allocated -= block.size
        block.free = True
        free, before, after = block.pool.free, block.previous, block.next
        if after is not None and after.free:
            del free[bisect_left(free, (after.size, after.address))]
            _join(block, after)
        if before is not None and before.free:
            del free[bisect_left(free, (before.size, before.address))]
            _join(before, block)
            block = before
        insort(free, (block.size, block.address, block))

    def empty_cache(self) -> None:
        """Give the segments back to the device that are free as a whole."""
        for pool in self.pools.values():
            self.reserved -= sum(size for size, _, block in pool.free if block.is_segment)
            pool.free = [own for own in pool.free if not own[2].is_segment]

    @property
    def free_blocks(self) -> list[list[tuple[int, int]]]:
        """Sizes and addresses, which decide what it does next."""
        return [[own[:2] for own in pool.free] for pool in self.pools.values()]

    def _segment(self, size: int, pool: Pool) -> Block:
        nbytes = segment_bytes(size)
        self.reserved += nbytes
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        self.opened += nbytes
        address = self.opened - nbytes if self.upwards else 2**47 - self.opened
        return Block(address, nbytes, pool)


def rounded(nbytes: int) -> int:
    """A request's size rounded up to a multiple of 512 B."""
    return max(1, -(-nbytes // MIN_BLOCK)) * MIN_BLOCK  # -(-a // b) is a / b rounded up


def segment_bytes(size: int) -> int:
    """Bytes of a block's segment: ``get_allocation_size`` in CUDACachingAllocator.cpp."""
    if size <= SMALL_SIZE:
        return 2 * MIB
    if size < 10 * MIB:
        return 20 * MIB
    return -(-size // (2 * MIB)) * 2 * MIB


def _join(left: Block, right: Block) -> None:
    left.size += right.size
    left.next = right.next
    if right.next is not None:
        right.next.previous = left
