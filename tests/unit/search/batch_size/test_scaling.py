"""How memory and speed scale with the micro-batch: exact where the performance model holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.search.batch_size.accumulation import (
    accumulated_speed,
    optimizer_seconds,
    pass_seconds,
)
from orchestrator.search.batch_size.fastest_size import size_of_speed
from orchestrator.search.batch_size.measured_sizes import measurement_of
from orchestrator.search.model.cost_line import CostLine
from tests.support.devices import Device, make_trial


@given(
    base=st.floats(1, 1e4),
    sample=st.floats(1, 1e3),
    sizes=st.sets(st.integers(1, 512), min_size=2),
    room=st.floats(0, 1e6),
)
def test_affine_memory_is_extended_exactly(base, sample, sizes, room):
    line = CostLine.of({size: base + sample * size for size in sizes})
    assert line.at(1000) == pytest.approx(base + sample * 1000, rel=1e-6)
    limit = float(line.costs[0]) + room
    largest = line.largest_within(limit)
    assert base + sample * (largest - 1e-3) <= limit <= base + sample * (largest + 1 + 1e-3)


@given(per_pass=st.floats(0.001, 1), per_sample=st.floats(0.001, 1), share=st.floats(0.01, 0.99))
def test_size_of_speed_is_where_the_speed_is_reached(per_pass, per_sample, share):
    speeds = {size: size / (per_pass + per_sample * size) for size in (8, 200)}
    wanted = speeds[8] + share * (speeds[200] - speeds[8])
    size = size_of_speed(speeds, 8, 200, wanted)
    assert size / (per_pass + per_sample * size) == pytest.approx(wanted, rel=1e-6)


def test_accumulation_pays_the_optimizer_once():
    device = Device(step_seconds=0.2, host_seconds=0.0)
    speeds = {size: device.speed(size) for size in (16, 64)}
    optimizer = optimizer_seconds(speeds, [])
    assert optimizer == pytest.approx(0.2)
    assert accumulated_speed(speeds, 32, 8, optimizer) == pytest.approx(device.speed(32, 8))


def test_optimizer_seconds_are_no_more_than_accumulation_saved():
    device = Device(step_seconds=0.2, host_seconds=0.0)
    speeds = {size: device.speed(size) for size in (16, 64)}
    slower = Device(step_seconds=0.2, host_seconds=0.0, slowdown=lambda size: 1.1)
    measured = measurement_of(slower.run(make_trial(16, 4)), margin=0.0)
    assert optimizer_seconds(speeds, [measured]) < 0.2


def test_pass_seconds_beyond_measured_sizes_are_cautious():
    speeds = {16: 100.0, 64: 200.0}
    assert pass_seconds(speeds, 1) == pytest.approx(0.16)
    assert pass_seconds(speeds, 40) == pytest.approx(0.24)
    assert pass_seconds(speeds, 128) == pytest.approx(0.64)
