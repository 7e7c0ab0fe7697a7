"""Streams of allocations as functions of the micro-batch."""

from orchestrator.prediction.affine_stream import Allocation, Free, Stream, between


def _stream(samples: int, *sizes: int) -> Stream:
    events = [
        Allocation(number=number, formula="tensor", integers=(size,), kind="saved activations")
        for number, size in enumerate(sizes, start=1)
    ]
    return Stream(events=(*events, Free(number=1)), samples=samples)


def test_between_interpolates_sizes_of_equal_events():
    low, high = _stream(2, 300, 50), _stream(8, 900, 50)
    middle = between(low, high, 4)
    assert middle.events == _stream(4, 500, 50).events
    assert between(low, _stream(8, 900), 4) is None
