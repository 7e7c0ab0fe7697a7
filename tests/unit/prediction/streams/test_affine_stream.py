"""Streams of allocations as functions of the micro-batch."""

from orchestrator.prediction.streams.affine_stream import Allocation, Free, Stream, between
from orchestrator.prediction.time.step_work import PartWork


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


def test_compiled_stream_keeps_a_share_of_activations_and_the_sources_of_logits_that_are_away():
    sizes = ((1, 400, "saved activations"), (2, 60, "logits"), (3, 90, "logits"), (4, 7, "inputs"))
    taken = [
        Allocation(number=number, formula="tensor", integers=(size,), kind=kind)
        for number, size, kind in sizes
    ]
    # The second is read again for the third, which is freed last and never written.
    events = (*taken, Free(number=2), Free(number=1), Free(number=3))
    stream = Stream(events=events, work=PartWork(unwritten={3: (2,), 1: (2,)}))
    compiled = stream.compiled(0.25)
    assert stream.saved_bytes == 400
    assert compiled.saved_bytes == 100
    assert [own.number for own in compiled.events] == [1, 2, 4, 1, 2]
