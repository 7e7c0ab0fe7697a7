"""Streams of deep models from those of models with few layers."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.prediction.streams.affine_stream import Allocation, Free, Stream
from orchestrator.prediction.streams.deep_stream import deepened
from orchestrator.prediction.time.operations import Operation
from orchestrator.prediction.time.step_work import PartWork


def _stream(layers: int, saved: list[int], copies: int, odd: bool) -> Stream:
    """A pass forward and backward through so many layers, the last of which makes logits."""
    events = []

    def take(nbytes, kind=""):
        events.append(
            Allocation(number=len(events), formula="tensor", integers=(nbytes,), kind=kind)
        )
        return events[-1].number

    def free(number):
        events.append(Free(number=number))

    hidden = take(99, "inputs")
    kept, cast = [], []
    for layer in range(layers):
        cast += [take(1000 + own) for own in range(copies)]
        kept.append([take(nbytes * (layer + 1 if odd else 1)) for nbytes in saved])
        before, hidden = hidden, take(77)
        free(before)
    logits = take(500, "logits")
    for own in cast:
        free(own)
    gradient = take(78)
    free(logits)
    for own in reversed(kept):
        for number in own:
            free(number)
            take(5, "gradients")
        gradient, before = take(78), gradient
        free(before)
    free(gradient)
    free(hidden)
    work = PartWork.of(
        [Operation(kind="elementwise", writes=((number, 8),)) for number in range(3 + layers)], ()
    )
    unwritten = {logits: (kept[-1][0], -7)}
    return Stream(
        events=tuple(events),
        work=PartWork(eager=work.eager, compiled=work.compiled, unwritten=unwritten),
    )


def _renumbered(stream: Stream) -> tuple[list[object], dict[int, int]]:
    numbers: dict[int, int] = {}
    events: list[object] = []
    for own in stream.events:
        number = numbers.setdefault(own.number, len(numbers))
        events.append(own._replace(number=number))
    return events, numbers


@given(
    st.lists(st.sampled_from([40, 41, 42]), min_size=1, max_size=4),
    st.integers(0, 3),
    st.integers(4, 9),
)
def test_deep_stream_is_that_of_the_deep_model(saved, copies, layers):
    few, more, whole = (_stream(own, saved, copies, False) for own in (2, 3, layers))
    deep = deepened(few, more, layers - 3)
    events, numbers = _renumbered(deep)
    expected, of_whole = _renumbered(whole)
    assert events == expected
    [(logits, sources)] = deep.work.unwritten.items()
    [(its_logits, its_sources)] = whole.work.unwritten.items()
    assert numbers[logits] == of_whole[its_logits]
    assert (numbers[sources[0]], sources[1]) == (of_whole[its_sources[0]], -7)
    assert deep.work.eager.launches() == 3 + layers


def test_layers_that_are_not_equal_have_no_deep_stream():
    assert deepened(_stream(2, [40], 1, True), _stream(3, [40], 1, True), 4) is None
    assert deepened(_stream(2, [40], 1, False), _stream(3, [41], 1, False), 4) is None
