"""Seconds of a step of several GPUs: what they exchange, what runs beside it, and their hosts."""

from dataclasses import replace

import pytest

from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.time.links import exchange_seconds
from orchestrator.prediction.time.operations import Operation, Sharing, StepWork, Work
from orchestrator.prediction.time.ranks_time import time_of
from orchestrator.prediction.time.step_time import step_time

H100 = load_gpu("h100")
MIB = 2**20


def _exchanged(kind: str, nbytes: int, times: float = 1.0) -> Work:
    return Work.of([Operation(kind=kind, writes=((0, nbytes),))]) * times


def _step(tflop: float, exchanged: Work, *, overlaps: bool = True, **hooks: float) -> StepWork:
    products = Operation(kind="bf16 products", flop=int(tflop * 1e12), reads=((1, 1000),))
    work = Work.of([products])
    sharing = Sharing(ranks=2, exchanged=exchanged, overlaps=overlaps, hooks=hooks)
    return StepWork(eager=work, compiled=work, samples=8, tokens=4096, sharing=sharing)


@pytest.mark.parametrize(
    ("kind", "milliseconds"),
    [("all-reduce", 1.72), ("all-gather", 1.09), ("reduce-scatter", 1.14)],
)
def test_two_h100s_exchange_as_fast_as_measured(kind, milliseconds):
    seconds = exchange_seconds(_exchanged(kind, 512 * MIB), H100, 2)
    assert seconds == pytest.approx(1e-3 * milliseconds, rel=0.05)


def test_more_ranks_and_slower_links_take_longer():
    own = _exchanged("all-reduce", 512 * MIB)
    two, eight = (exchange_seconds(own, H100, ranks) for ranks in (2, 8))
    assert two < eight < 2 * two
    assert exchange_seconds(own, load_gpu("rtx_4090"), 2) > 10 * two


def test_exchange_hides_behind_longer_kernels_except_its_ends():
    own = _exchanged("all-gather", 512 * MIB, 100)
    exchange = exchange_seconds(own, H100, 2)
    long = _step(400, own)
    computing = step_time(long, H100).seconds
    assert time_of(long, H100).seconds == pytest.approx(computing + exchange / 50)
    assert time_of(_step(1, own), H100).seconds == pytest.approx(exchange, rel=0.01)
    apart = replace(long, sharing=replace(long.sharing, overlaps=False))
    assert time_of(apart, H100).seconds == pytest.approx(computing + exchange)


def test_engine_on_the_host_takes_its_time_whatever_the_batch():
    own = _exchanged("all-gather", MIB)
    small, larger = (time_of(_step(tflop, own, zero3=340), H100) for tflop in (10, 40))
    assert small.seconds == larger.seconds > 0.2
    assert small.low < small.seconds < small.high
    assert small.bound == "host"
    assert time_of(_step(2000, own, zero3=340), H100).bound == "gpu"


def test_card_without_a_known_link_has_no_time():
    step = _step(10, _exchanged("all-reduce", MIB))
    assert time_of(step, replace(H100, link_bytes_per_second=0.0)) is None
    assert time_of(replace(step, sharing=None), replace(H100, link_bytes_per_second=0.0))
