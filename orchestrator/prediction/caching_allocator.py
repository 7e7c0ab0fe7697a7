"""Simulates the byte counts of PyTorch's CUDA caching allocator: rounding, pools and segments."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from dataclasses import dataclass, field

from orchestrator.units import MIB

# c10/core/AllocatorConfig.h and c10/cuda/CUDACachingAllocator.cpp, default settings, torch 2.11 to
# 2.13.
MIN_BLOCK = 512
SMALL_SIZE = 2**20


@dataclass(slots=True, eq=False)
class Block:
    """Part of a segment of device memory, linked to the blocks before and after it."""

    address: int
    size: int
    small: bool
    stream: int = 0
    free: bool = True
    previous: Block | None = None
    next: Block | None = None

    @property
    def pool(self) -> tuple[int, bool]:
        """Only requests of the same stream, and as small or large ones, get it."""
        return self.stream, self.small


@dataclass(slots=True)
class CachingAllocator:
    """The allocator of one device.

    ``allocated`` counts whole blocks, as ``torch.cuda.memory_allocated`` does. A request takes the
    smallest cached block that holds it, of equal ones that with the lowest address. Segments come
    from the device without limit and are never returned. Each lies at a lower address than the one
    before, as recorded peaks show; with ``upwards`` at a higher one.
    """

    upwards: bool = False
    allocated: int = 0
    reserved: int = 0
    peak_allocated: int = 0
    peak_reserved: int = 0
    _free: defaultdict[tuple[int, bool], list[tuple[int, int, Block]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Pool -> its free blocks as (size, address, block), sorted."""

    def allocate(self, nbytes: int, stream: int = 0) -> Block | None:
        """A block for a tensor of ``nbytes``; None for an empty tensor, which takes no memory."""
        if nbytes <= 0:
            return None
        size = rounded(nbytes)
        pool = (stream, size <= SMALL_SIZE)
        block = self._cached(size, pool) or self._segment(size, pool)
        self._split(block, size)
        block.free = False
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def free(self, block: Block | None) -> None:
        """Give a block back to its pool, merged with free neighbours of its segment."""
        if block is None:
            return
        self.allocated -= block.size
        block.free = True
        before = block.previous
        after = block.next
        if after is not None and after.free:
            self._take(after)
            block.size += after.size
            _link(block, after.next)
        if before is not None and before.free:
            self._take(before)
            before.size += block.size
            _link(before, block.next)
            block = before
        insort(self._free[block.pool], (block.size, block.address, block))

    def _cached(self, size: int, pool: tuple[int, bool]) -> Block | None:
        free = self._free[pool]  # sorted by size, then by address
        index = bisect_left(free, (size, -1))
        return free.pop(index)[2] if index < len(free) else None

    def _segment(self, size: int, pool: tuple[int, bool]) -> Block:
        nbytes = segment_bytes(size)
        self.reserved += nbytes
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        address = self.reserved - nbytes if self.upwards else 2**47 - self.reserved
        stream, small = pool
        return Block(address=address, size=nbytes, small=small, stream=stream)

    def _split(self, block: Block, size: int) -> None:
        remaining = block.size - size
        # The same condition as ``should_split`` in CUDACachingAllocator.cpp.
        if remaining < (MIN_BLOCK if block.small else SMALL_SIZE + 1):
            return
        rest = Block(block.address + size, remaining, block.small, block.stream)
        _link(rest, block.next)
        _link(block, rest)
        block.size = size
        insort(self._free[rest.pool], (rest.size, rest.address, rest))

    def _take(self, block: Block) -> None:
        free = self._free[block.pool]
        del free[bisect_left(free, (block.size, block.address))]


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


def _link(left: Block, right: Block | None) -> None:
    left.next = right
    if right is not None:
        right.previous = left
