"""What one unlucky address costs: the replay of recorded allocations."""

from __future__ import annotations

from orchestrator.prediction.allocator import CachingAllocator
from orchestrator.units import MIB
from tests.gpu.fragmentation import GivenAddresses, replayed

BLOCK = 100 * MIB
SMALL = 30 * MIB
Event = tuple[str, int, int]


def _events() -> list[Event]:
    """A block stays, its equal is freed beside a third; a small tensor is carved from one of two.

    The freed blocks hold the small tensor and one block again; a rest of the first one is joined
    by nothing.
    """
    return [
        ("alloc", 1, BLOCK),
        ("alloc", 2, BLOCK + SMALL),
        ("free_completed", 1, BLOCK),
        ("free_completed", 2, BLOCK + SMALL),
        ("alloc", 3, SMALL),
        ("alloc", 4, BLOCK),
    ]


def test_replayed_reuses_what_is_large_enough() -> None:
    assert replayed(_events(), CachingAllocator()) == 2 * BLOCK + SMALL


def test_replayed_equal_blocks_go_by_the_recorded_addresses() -> None:
    # Two free blocks of one size: the lower address is split first, and the upper one stays whole.
    events: list[Event] = [("alloc", number, BLOCK) for number in (1, 2)]
    events += [("free_completed", number, BLOCK) for number in (1, 2)]
    events += [("alloc", 3, SMALL)]
    rising = GivenAddresses(addresses=[10 * BLOCK, 20 * BLOCK])
    falling = GivenAddresses(addresses=[20 * BLOCK, 10 * BLOCK])
    assert replayed(events, rising) == replayed(events, falling) == 2 * BLOCK
    assert [block.address for *_, block in rising._free[False]][-1] == 20 * BLOCK
    assert [block.address for *_, block in falling._free[False]][-1] == 20 * BLOCK
