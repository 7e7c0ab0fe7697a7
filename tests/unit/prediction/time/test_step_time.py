"""Seconds of a step: the roofline of its kernels, what a compiler fuses, and who is the limit."""

from dataclasses import replace

import numpy as np
import pytest

from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.time.fusion import fused
from orchestrator.prediction.time.operations import Operation, StepWork, Work
from orchestrator.prediction.time.step_time import full_rate_seconds, step_time
from orchestrator.prediction.time.tiles import tiled_flop

H200 = load_gpu("h200")
TFLOP, GB = 10**12, 10**9


def _step(*operations: Operation, times: float = 1.0, **changes: object) -> StepWork:
    work = Work.of(operations) * times
    return replace(StepWork(eager=work, compiled=work, samples=8, tokens=4096), **changes)


def _product(flop: int, nbytes: int, number_format: str = "bf16") -> Operation:
    return Operation(kind=f"{number_format} products", flop=flop, reads=((1, nbytes),))


def test_kernel_takes_the_longer_of_arithmetic_and_bytes():
    step = _step(_product(100 * TFLOP, GB), _product(TFLOP, 480 * GB))
    seconds = full_rate_seconds(step, H200)
    assert seconds["16-bit products"] == pytest.approx(100 / 989.4 + 240 / 4800 + 240 / (132 * 43))


def test_tiles_that_do_not_fill_the_multiprocessors_cost_as_much_as_full_ones():
    def flop(rows: int) -> float:
        sizes = np.array([[1, rows, 256, 4096]], dtype=float)
        return float(tiled_flop(sizes, 132, fills=False)[0])

    whole = flop(132 * 128)
    assert whole == 2 * 132 * 128 * 256 * 4096
    assert flop(132 * 128 - 100) == whole < flop(132 * 128 + 1)
    assert flop(128) > 2 * 128 * 256 * 4096


def test_tf32_speeds_up_products_and_not_attention():
    operations = (
        _product(67 * TFLOP, GB, "fp32"),
        Operation(kind="fp32 efficient attention", flop=67 * TFLOP),
    )
    exact = full_rate_seconds(_step(*operations), H200)
    tf32 = full_rate_seconds(_step(*operations, formats={"fp32": "tf32"}), H200)
    assert exact["fp32 products"] == pytest.approx(1)
    assert tf32["tf32 products"] == pytest.approx(67 / 494.7)
    assert tf32["fp32 attention"] == exact["fp32 attention"] == pytest.approx(1)


def test_masks_of_attention_take_their_own_time_and_less_in_shorter_rows():
    scores = 132 * 16 * 1.7e9
    attention = Operation(kind="bf16 cudnn attention", sizes=(int(scores), 0, int(scores), 0))
    whole = _step(attention)
    seconds = full_rate_seconds(whole, H200)
    assert seconds["masked scores"] == seconds["scores"] == pytest.approx(1)
    half = replace(whole, eager=whole.eager.seeing(0.5))
    assert full_rate_seconds(half, H200)["masked scores"] == pytest.approx(0.5)


def test_deeper_model_runs_as_many_layers_more():
    two, four = (_step(_product(TFLOP, GB), times=layers).eager for layers in (2, 4))
    deep = four.deepened(two, 10)
    assert deep.model_flop == 24 * TFLOP
    assert deep.launches() == 24


@pytest.mark.parametrize(
    ("launches", "bound"), [(1, "gpu"), (1e6, "host")], ids=["one kernel", "many tiny kernels"]
)
def test_step_of_many_tiny_kernels_is_host_bound(launches, bound):
    flop = 100 * TFLOP if bound == "gpu" else 10**6
    time = step_time(_step(_product(flop, 1000), times=launches), H200)
    assert time.bound == bound
    assert time.low < time.seconds < time.high


def test_interval_reaches_to_slow_hosts_unless_the_gpu_is_slower_than_any():
    fast, slow = (
        step_time(_step(_product(own, 1000), times=1000), H200) for own in (TFLOP // 100, TFLOP)
    )
    assert (fast.bound, slow.bound) == ("either", "gpu")
    assert fast.high > 1.5 * fast.host_seconds
    assert slow.high < 2 * slow.seconds


def test_interval_of_a_card_that_was_never_compared_is_wider():
    step = _step(_product(100 * TFLOP, GB))
    known, other = (step_time(step, load_gpu(name)) for name in ("h200", "a100_80gb"))
    assert other.seconds > known.seconds
    assert other.high / other.seconds > known.high / known.seconds
    assert step_time(step, replace(H200, flops_per_second={})) is None


def test_mfu_is_the_share_of_the_rate_without_recomputed_operations():
    again = _product(100 * TFLOP, GB)._replace(is_recomputed=True)
    time = step_time(_step(_product(100 * TFLOP, GB), again), H200)
    assert time.mfu == pytest.approx(100 * TFLOP / time.seconds / 989.4e12)


def _elementwise(reads: tuple[int, ...], write: int, phase: str = "forward") -> Operation:
    accesses = tuple((number, GB) for number in reads)
    return Operation(kind="elementwise", phase=phase, reads=accesses, writes=((write, GB),))


def _accesses(operation: Operation) -> tuple[set[int], set[int]]:
    return {own for own, _ in operation.reads}, {own for own, _ in operation.writes}


def test_compiler_joins_neighbours_and_writes_what_a_product_reads():
    product = Operation(kind="bf16 products", phase="forward", reads=((3, GB),), writes=((4, GB),))
    kernels, _ = fused([_elementwise((1,), 2), _elementwise((1, 2), 3), product], kept=())
    assert len(kernels) == 2
    assert _accesses(kernels[0]) == ({1}, {3})


def test_backward_pass_computes_again_what_no_product_read():
    forward = [_elementwise((1,), 2), _elementwise((2,), 3)]
    kernels, unwritten = fused([*forward, _elementwise((2, 9), 5, "backward")], kept={5})
    assert _accesses(kernels[-1]) == ({1, 9}, {5})
    assert {number: set(own) for number, own in unwritten.items()} == {2: {1}, 3: {1}}
