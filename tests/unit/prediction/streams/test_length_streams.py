"""Sizes at every length, from traces at a few."""

import pytest

from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.streams.affine_stream import Allocation, Free, Stream
from orchestrator.prediction.streams.length_streams import LengthStreams, traced_lengths
from orchestrator.prediction.streams.sized_stream import SizedStream

H200 = load_gpu("h200")


def _stream(inputs: int, targets: int) -> Stream:
    """A tensor of positions, one of pairs, and a kernel's workspace."""
    sizes = (100 * inputs, 3 * inputs**2 + inputs * targets, 7)
    events: list[Allocation | Free] = []
    for number, size in enumerate(sizes):
        events.append(
            Allocation(number=number, formula="tensor", integers=(size,), kind="saved activations")
        )
    events.append(
        Allocation(number=3, formula="embedding_backward", integers=(inputs, 10, 64), kind="")
    )
    return Stream(events=(*events, Free(number=0)))


@pytest.mark.parametrize("wanted", [(1234, 77), (2047, 9), (1001, 500)])
def test_sizes_at_a_length_are_those_of_its_trace(wanted):
    nodes = traced_lengths(
        [(5, 9), (2047, 9), (1234, 77), (2047, 511), *[(n, n) for n in (6, 7, 8)]]
    )
    assert len(nodes) == 6
    streams = LengthStreams({own: _stream(*own) for own in nodes}, H200)
    assert streams.at(wanted).sizes == SizedStream.of(_stream(*wanted), H200).sizes


@pytest.mark.parametrize(
    "wanted",
    [
        [(inputs, targets) for inputs in range(61, 512) for targets in (2, 3)],
        [(inputs, targets) for inputs in range(61, 512, 7) for targets in (3, 4)],
        [(inputs, targets) for inputs in (20, 21) for targets in range(1, 300)],
        [(inputs, 9) for inputs in range(64, 129)],
    ],
)
def test_sizes_follow_where_one_kind_of_length_hardly_varies(wanted):
    nodes = traced_lengths(wanted)
    assert len(nodes) <= 9
    streams = LengthStreams({own: _stream(*own) for own in nodes}, H200)
    for lengths in [wanted[0], wanted[1], wanted[-2], wanted[-1], wanted[len(wanted) // 2]]:
        assert streams.at(lengths).sizes == SizedStream.of(_stream(*lengths), H200).sizes


def test_few_lengths_are_all_traced_and_padded_ones_stay_multiples():
    assert traced_lengths([(8,), (3,), (8,)]) == [(3,), (8,)]
    assert traced_lengths([(64 * own,) for own in range(1, 30)]) == [(64,), (960,), (1856,)]
    assert all(length % 2 for (length,) in traced_lengths([(own,) for own in range(2, 2049)]))


def test_other_events_at_other_lengths_are_those_of_the_next_longer_trace():
    short, long = _stream(8, 1), _stream(64, 1)
    streams = LengthStreams({(8, 1): Stream(events=short.events[:2]), (64, 1): long}, H200)
    assert streams.at((9, 1)) == SizedStream.of(long, H200)
