"""The batch-size search on simulated devices: what it asks for, and that its answers are true."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import infrastructure
from orchestrator.analysis.batch_size_answer import BatchSizeResult
from orchestrator.search.batch_size.batch_size_search import BatchSizeGoal, BatchSizeSearch
from orchestrator.units import GIB
from tests.benchmarks.grids import recorded
from tests.support.devices import Cpu, Device, Table, make_trial, run_to_the_end
from tests.support.golden import assert_golden

Batches = list[tuple[int, int]]


def tune(device: Device, limited: bool = True, **options: Any) -> tuple[Batches, BatchSizeResult]:
    """What was asked for, in order, and the answer."""
    search = BatchSizeSearch(
        make_trial, BatchSizeGoal(**options), techniques="SIMULATED", limited=limited
    )
    return run_to_the_end(search, device), search.answer


def picks(answer: BatchSizeResult) -> tuple[int | None, ...]:
    """Largest, fastest, and the saturation."""
    return tuple(
        size and size.micro_batch for size in (answer.largest, answer.fastest, answer.saturation)
    )


def way(answer: BatchSizeResult) -> tuple[int, int] | None:
    """The way to the effective batch."""
    return answer.accumulated and (answer.accumulated.micro_batch, answer.accumulated.accumulation)


def test_search_of_bert_large_on_an_h200_takes_five_trials():
    device = Device()
    asked, answer = tune(device, effective_batch=256)
    assert asked == [(16, 1), (128, 1), (248, 1), (128, 2), (96, 1)]
    assert (picks(answer), way(answer)) == ((248, 248, 96), (128, 2))
    assert answer.slot_seconds <= 25


def test_search_counts_fewer_of_long_steps_and_knows_such_trials():
    device = Device(samples_per_second=60)
    tune(device)
    steps = {record.spec.micro_batch: record.spec.measure.steps for record in device.ran}
    assert (steps[16], steps[248]) == (5, 2)
    assert all(BatchSizeSearch(make_trial).knows(record.spec) for record in device.ran)


@pytest.mark.parametrize("rule", sorted(infrastructure.RULES))
def test_search_ends_where_the_machine_fails_and_resumes_there(rule):
    device = Device()
    search = BatchSizeSearch(make_trial)
    first = search.ask()
    search.tell(device.run(first))
    second = search.ask()
    assert second is not None
    search.tell(infrastructure.unmeasured(second, rule, "the machine was to blame"))
    assert search.exhausted
    assert [size.micro_batch for size in search.answer.sizes] == [first.micro_batch]
    assert search.answer.unfinished.startswith(f"{rule}: the machine was to blame")
    # A resumed run knows the first trial alone, and asks for the second one again.
    resumed = BatchSizeSearch(make_trial)
    resumed.tell(device.run(first))
    assert resumed.ask() == second


FP32 = {"base_mib": 3_931, "floor_mib": 5_184, "sample_mib": 807, "samples_per_second": 44}
CHECKPOINT = {
    "base_mib": 3_932,
    "sample_mib": 78.5,
    "samples_per_second": 261,
    "host_seconds": 0.125,
}
CASES: dict[str, tuple[Device, dict[str, Any]]] = {
    "an allocator's rounding": (Device(rounding_mib=700), {}),
    "to the last byte, exactly": (Device(rounding_mib=600), {"memory_margin": 0.0, "exact": True}),
    "an optimizer's floor hides the slope at small sizes": (Device(**CHECKPOINT), {}),
    "a small GPU": (Device(**FP32, device_mib=16384), {}),
    "a smaller one": (Device(**FP32, device_mib=8192), {}),
    "out of memory at 1": (Device(**FP32, device_mib=6144), {}),
    "memory grows faster from 100 on": (
        Device(extra_mib=lambda size: 40.0 * max(0, size - 100)),
        {},
    ),
    "everything fails from 78 on": (
        Device(extra_mib=lambda size: 150000.0 * (size > 77)),
        {"exact": True},
    ),
    "speed falls at the largest": (Device(slowdown=lambda size: 1.0 if size < 240 else 1.5), {}),
    "the smallest is as fast as any": (Device(host_seconds=0.0, step_seconds=0.0), {}),
    "a slow optimizer step": (Device(step_seconds=1.0), {}),
    "no GPU": (
        Cpu(samples_per_second=20, host_seconds=0.01),
        {"limited": False, "max_micro_batch": 64},
    ),
    "no larger than asked": (Device(), {"max_micro_batch": 10}),
}


def test_searches_ask_and_answer_as_recorded():
    lines = []
    for name, (device, options) in CASES.items():
        asked, answer = tune(device, **options)
        assert answer.unfinished == ""
        sizes = ", ".join(f"{size}×{accumulation}" for size, accumulation in asked)
        lines.append(f"{name}: {sizes}\n  largest, fastest, saturation: {picks(answer)}")
    assert_golden("batch_size_search.txt", "\n".join(lines))


@pytest.mark.parametrize(
    ("device", "effective", "expected"),
    [
        (Device(), 256, (128, 2)),
        (Device(), 64, (64, 1)),
        (Device(), 96, (96, 1)),
        (Device(), 1000, (200, 5)),
        (Device(), 257, (1, 257)),
        (Device(**FP32, device_mib=16_384), 256, (8, 32)),
        (Device(gradients_mib=100_000), 256, (32, 8)),
        (Device(**FP32, device_mib=8_192), 256, None),
    ],
)
def test_search_reaches_the_effective_batch_exactly(device, effective, expected):
    _, answer = tune(device, effective_batch=effective)
    assert way(answer) == expected


@settings(deadline=None, max_examples=150)
@given(
    device=st.builds(
        Device,
        device_mib=st.floats(4_000, 200_000),
        base_mib=st.floats(500, 20_000),
        floor_mib=st.floats(500, 20_000),
        sample_mib=st.floats(5, 5_000),
        gradients_mib=st.floats(0, 20_000),
        host_seconds=st.floats(0, 0.5),
        step_seconds=st.floats(0, 1),
        samples_per_second=st.floats(1, 2_000),
        rounding_mib=st.sampled_from([0.0, 0.0, 50.0, 1_000.0]),
        noise=st.sampled_from([0.0, 0.01, 0.1]),
        seed=st.integers(0, 1_000),
    ),
    margin=st.sampled_from([0.0, 0.05, 0.3, 2.0 * GIB]),
    effective=st.one_of(st.none(), st.integers(1, 600)),
    exact=st.booleans(),
)
def test_answers_on_any_device_are_measured_and_true(device, margin, effective, exact):
    asked, answer = tune(device, memory_margin=margin, effective_batch=effective, exact=exact)
    assert len(asked) == len(set(asked)) <= 40
    ran = {record.trial_id: record for record in device.ran}
    assert {size.trial_id for size in answer.sizes} == set(ran)
    limit = device.device_mib * (1 - margin) if margin < 1 else device.device_mib - margin / 2**20
    fitting = [size for size in range(1, 513) if device.needs_mib(size) <= limit + 0.001]
    largest = answer.largest
    if largest is None:
        assert device.needs_mib(1) > limit - 0.001
        return
    truth = max(fitting)
    assert largest.memory_bytes is not None
    assert largest.memory_bytes <= largest.limit_bytes
    # On a floor it is rounding alone that tells sizes apart, and it may look like growth.
    hidden = max(0.0, device.floor_mib - device.base_mib) if device.rounding_mib else 0.0
    off = math.ceil((device.rounding_mib + hidden + 0.002) / device.sample_mib)
    assert truth - answer.granularity - off <= largest.micro_batch <= truth
    single = [size for size in answer.sizes if size.accumulation == 1 and size.fits]
    assert answer.fastest.speed == max(size.speed for size in single)
    assert answer.saturation.speed >= 0.98 * answer.fastest.speed
    assert all(
        size.speed < 0.98 * answer.fastest.speed
        for size in single
        if size.micro_batch < answer.saturation.micro_batch
    )
    if answer.accumulated is not None:
        assert answer.accumulated.micro_batch * answer.accumulated.accumulation == effective
        assert answer.accumulated.fits
    assert json.loads(json.dumps(answer.to_json()))["fastest"]["trial_id"] in ran


SETS = sorted(
    {
        tuple(record.spec.choices[axis] for axis in ("precision", "activations", "optimizer"))
        for record in recorded().values()
    },
    key=str,
)


@pytest.mark.parametrize("techniques", SETS, ids=lambda found: "-".join(map(str, found)))
def test_search_replayed_on_the_recorded_h200_is_right(techniques):
    device = Table(techniques)
    asked, answer = tune(device)
    assert len(asked) <= 8
    assert answer.fastest.speed >= 0.98 * max(device.speeds.values())
    assert answer.largest.micro_batch >= max(device.speeds)


@pytest.mark.parametrize(
    ("noise", "max_trials", "max_loss"), [(0.0, 5, 0.001), (0.01, 8, 0.03), (0.03, 10, 0.06)]
)
def test_noise_costs_few_trials_and_little_speed(noise, max_trials, max_loss):
    clean = Device()
    devices = [Device(noise=noise, rounding_mib=500, seed=seed) for seed in range(100)]
    answers = [tune(device, effective_batch=256)[1] for device in devices]
    assert max(len(device.ran) for device in devices) <= max_trials
    chosen = [answer.fastest.micro_batch for answer in answers if answer.fastest]
    assert 1 - min(map(clean.speed, chosen)) / clean.speed(248) <= max_loss
    assert {way(answer) for answer in answers} <= {(128, 2), (64, 4)}
    assert {size.micro_batch for answer in answers if (size := answer.largest)} == {248}
