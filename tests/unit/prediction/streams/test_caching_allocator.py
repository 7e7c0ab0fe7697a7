"""PyTorch's caching allocator, as far as byte counts go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.prediction.streams.caching_allocator import (
    Block,
    CachingAllocator,
    rounded,
    segment_bytes,
)
from orchestrator.units import MIB


def test_rounded_and_segment_bytes_follow_pytorch():
    assert [rounded(size) for size in (1, 512, 513)] == [512, 512, 1024]
    sizes = (512, MIB, MIB + 512, 10 * MIB, 11 * MIB)
    assert [segment_bytes(size) // MIB for size in sizes] == [2, 2, 20, 10, 12]


def test_allocate_small_remainder_counts_as_allocated():
    # BERT's word embeddings: 119.23 MiB lie in a segment of 120 MiB, whose rest is under 1 MiB.
    allocator = CachingAllocator()
    allocator.allocate(30522 * 1024 * 4)
    assert allocator.allocated == allocator.reserved == 120 * MIB


def test_allocate_takes_the_smallest_cached_block_that_fits():
    allocator = CachingAllocator()
    kept = [allocator.allocate(size * MIB) for size in (30, 20, 40)]
    for block in kept:
        allocator.free(block)
    allocator.allocate(18 * MIB)
    assert (allocator.allocated, allocator.reserved) == (18 * MIB, 90 * MIB)
    allocator.allocate(30 * MIB)
    assert allocator.reserved == 90 * MIB


def test_empty_cache_returns_whole_segments_and_keeps_addresses_apart():
    allocator = CachingAllocator()
    blocks = [allocator.allocate(size * MIB) for size in (30, 20, 8)]
    for block in blocks:
        allocator.free(block)
    used = allocator.allocate(12 * MIB)  # a part of the segment of 20 MiB
    allocator.empty_cache()
    assert (allocator.allocated, allocator.reserved) == (12 * MIB, 20 * MIB)
    again = allocator.allocate(30 * MIB)
    assert allocator.reserved == 50 * MIB
    assert abs(again.address - used.address) >= 30 * MIB


@pytest.mark.parametrize("upwards", [True, False])
def test_allocate_of_equal_blocks_takes_the_lowest_address(upwards):
    allocator = CachingAllocator(upwards=upwards)
    older = allocator.allocate(30 * MIB)
    newer = allocator.allocate(30 * MIB)
    allocator.free(older)
    allocator.free(newer)
    assert allocator.allocate(30 * MIB) is (older if upwards else newer)


@given(st.lists(st.tuples(st.integers(1, 40 * MIB), st.booleans()), max_size=60))
def test_allocated_is_what_lives_and_freed_memory_is_whole(requests):
    allocator = CachingAllocator()
    living: list[Block] = []
    for nbytes, stays in requests:
        block = allocator.allocate(nbytes)
        assert block.size >= nbytes
        if stays:
            living.append(block)
        else:
            allocator.free(block)
        assert allocator.allocated == sum(block.size for block in living) <= allocator.reserved
    for block in living:
        allocator.free(block)
    assert allocator.allocated == 0
    free = [block for pool in allocator.pools.values() for *_, block in pool.free]
    assert sum(block.size for block in free) == allocator.reserved
    assert all(block.previous is None and block.next is None for block in free)
