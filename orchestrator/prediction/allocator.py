"""PyTorch's CUDA caching allocator, as far as byte counts go: rounding, pools, segments."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

# c10/core/AllocatorConfig.h and c10/cuda/CUDACachingAllocator.cpp, default settings, torch 2.11 to
# 2.13.
MIN_BLOCK = 512
SMALL_SIZE = 2**20
SMALL_BUFFER = 2 * 2**20
MIN_LARGE_ALLOCATION = 10 * 2**20
LARGE_BUFFER = 20 * 2**20
ROUND_LARGE = 2 * 2**20
_HIGHEST_ADDRESS = 2**47


@dataclass(slots=True, eq=False)
class Block:
    """Part of a segment of device memory, linked to the blocks before and after it."""

    address: int
    size: int
    small: bool
    free: bool = True
    previous: Block | None = None
    next: Block | None = None


def _empty_pools() -> dict[bool, list[tuple[int, int, Block]]]:
    return {True: [], False: []}


@dataclass(slots=True)
class CachingAllocator:
    """One stream of one device.

    ``allocated`` counts whole blocks, as ``torch.cuda.memory_allocated`` does. A request takes the
    smallest cached block that holds it, and of equal blocks the lowest address. It splits off what
    is left if that is worth keeping: at least 512 B in the pool of small blocks, more than 1 MiB in
    the other. Segments come from the device without limit and are never returned. Each lies below
    the one before, as recorded peaks show; with ``upwards`` it lies above.
    """

    upwards: bool = False
    allocated: int = 0
    reserved: int = 0
    peak_allocated: int = 0
    peak_reserved: int = 0
    _free: dict[bool, list[tuple[int, int, Block]]] = field(default_factory=_empty_pools)
    """Whether small -> the free blocks of the pool, as (size, address, block) in order."""

    def allocate(self, nbytes: int) -> Block | None:
        """A block for a tensor of ``nbytes``; None for none, which takes no memory."""
        if nbytes <= 0:
            return None
        # A cached block if one is large enough, else a new segment; what is left over is split off.
        size = rounded(nbytes)
        small = size <= SMALL_SIZE
        block = self._cached(size, small) or self._segment(size, small)
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
        # Merge with the free neighbours, which leave the pool as blocks of their own.
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
        insort(self._free[block.small], (block.size, block.address, block))

    def _cached(self, size: int, small: bool) -> Block | None:
        pool = self._free[small]
        # The first block that is large enough: the pool is sorted by size, then by address.
        index = bisect_left(pool, (size, -1))
        if index == len(pool):
            return None
        _, _, block = pool.pop(index)
        return block

    def _segment(self, size: int, small: bool) -> Block:
        nbytes = segment_bytes(size)
        self.reserved += nbytes
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        # Segments adjoin each other, but blocks of two segments are never merged.
        address = _HIGHEST_ADDRESS - self.reserved
        if self.upwards:
            address = self.reserved - nbytes
        return Block(address=address, size=nbytes, small=small)

    def _split(self, block: Block, size: int) -> None:
        remaining = block.size - size
        # ``should_split`` of CUDACachingAllocator.cpp.
        least = SMALL_SIZE + 1
        if block.small:
            least = MIN_BLOCK
        if remaining < least:
            return
        rest = Block(address=block.address + size, size=remaining, small=block.small)
        _link(rest, block.next)
        _link(block, rest)
        block.size = size
        insort(self._free[rest.small], (rest.size, rest.address, rest))

    def _take(self, block: Block) -> None:
        pool = self._free[block.small]
        del pool[bisect_left(pool, (block.size, block.address))]


def rounded(nbytes: int) -> int:
    """The size of a request: a multiple of 512 B."""
    # -(-a // b) is a / b rounded up.
    blocks = max(1, -(-nbytes // MIN_BLOCK))
    return blocks * MIN_BLOCK


def segment_bytes(size: int) -> int:
    """What is asked of the device for a block of ``size`` bytes."""
    if size <= SMALL_SIZE:
        return SMALL_BUFFER
    if size < MIN_LARGE_ALLOCATION:
        return LARGE_BUFFER
    return -(-size // ROUND_LARGE) * ROUND_LARGE


def _link(left: Block, right: Block | None) -> None:
    left.next = right
    if right is not None:
        right.previous = left
