"""The frontier: no point on it is beaten, every point off it is, and unlike environments never meet."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrator.analysis.frame.points import frontiers, memory_column, points

from orchestrator.analysis.objectives import OBJECTIVES
from orchestrator.analysis.pareto import Point, fast, frontier, lean, training_of
from orchestrator.storage.tables.parquet import axes_of, trials_table
from tests.support.records import COLUMNS, H200, MIB, make_record


def point(memory: int, speed: float, environment: str = "e", equivalence: str = "exact") -> Point:
    return Point(
        choices={},
        environment_id=environment,
        equivalence=equivalence,
        memory_bytes=memory,
        samples_per_second=speed,
        row={},
    )


POINTS = st.lists(
    st.builds(
        point,
        st.integers(1, 12),
        st.integers(1, 12).map(float),
        st.sampled_from("ef"),
        st.sampled_from(
            ["effective_batch=1", "effective_batch=2", "effective_batch=2 · optimizer=sgd"]
        ),
    )
)


def beats(one: Point, other: Point) -> bool:
    no_worse = (
        one.memory_bytes <= other.memory_bytes
        and one.samples_per_second >= other.samples_per_second
    )
    better = (
        one.memory_bytes < other.memory_bytes or one.samples_per_second > other.samples_per_second
    )
    return no_worse and better


@given(POINTS)
def test_the_frontier_is_exactly_what_nothing_beats(given: list[Point]) -> None:
    front = frontier(given)
    unbeaten = [p for p in given if not any(beats(other, p) for other in given)]
    assert sorted(map(id, front)) == sorted(map(id, unbeaten))
    assert [p.memory_bytes for p in front] == sorted(p.memory_bytes for p in front)
    assert [p.samples_per_second for p in front] == sorted(p.samples_per_second for p in front)


@given(POINTS)
def test_groups_never_mix_and_the_mixed_front_is_among_theirs(given: list[Point]) -> None:
    own, across = frontiers(given), frontiers(given, within=lambda p: p.environments)
    for (environment, training), front in own.items():
        assert {(p.environment_id, p.training) for p in front} == {(environment, training)}
        assert front == frontier(
            p for p in given if (p.environment_id, p.training) == (environment, training)
        )
    for (environment, _), front in across.items():
        assert {p.environment_id for p in front} == {environment}
        assert {id(p) for p in front} <= {id(p) for group in own.values() for p in group}


THIRD = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.none() | st.integers(1, 6)), max_size=20
)


@given(THIRD)
def test_on_three_axes_too_and_what_lacks_a_figure_is_left_out(
    given: list[tuple[int, int, int | None]],
) -> None:
    made = [
        dataclasses.replace(point(m, float(s)), row={"host_peak_resident_bytes": host})
        for m, s, host in given
    ]
    axes = (lean, fast, OBJECTIVES["host_memory"].score)

    def worse(one: Point, other: Point) -> bool:
        mine, theirs = ([axis(p) for axis in axes] for p in (one, other))
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))

    known = [p for p in made if p.row["host_peak_resident_bytes"] is not None]
    unbeaten = [p for p in known if not any(worse(p, other) for other in known)]
    assert sorted(map(id, frontier(made, axes))) == sorted(map(id, unbeaten))


def test_objectives_say_what_they_measure_and_money_needs_a_price() -> None:
    measured = dataclasses.replace(point(1, 50.0), row={"joules_per_sample": 2.0})
    assert OBJECTIVES["dollars_per_million"].of(measured, 3.6) == pytest.approx(
        20.0
    )  # 20,000 s at 0.001 a second
    assert OBJECTIVES["dollars_per_million"].of(measured, None) is None
    assert OBJECTIVES["joules_per_sample"].score(measured) == -2.0
    older = {"energy_joules": 300.0, "samples_per_second": 50.0, "counted_seconds": 3.0}
    assert OBJECTIVES["joules_per_sample"].of(dataclasses.replace(measured, row=older), None) == 2.0
    assert OBJECTIVES["host_memory"].score(measured) == float("-inf")


@pytest.mark.parametrize(
    ("equivalence", "training"),
    [
        ("exact", ""),
        ("", ""),
        ("effective_batch=16", ""),
        ("effective_batch=16 · optimizer=sgd", "optimizer=sgd"),
        ("effective_batch=16 · optimizer=sgd · adapter=lora", "optimizer=sgd · adapter=lora"),
    ],
)
def test_the_kind_of_training_is_the_equivalence_without_its_batch(
    equivalence: str, training: str
) -> None:
    assert training_of(equivalence) == training


def test_batches_of_one_training_share_a_frontier_and_other_trainings_stay_out() -> None:
    small, large = (
        point(1, 1.0, equivalence="effective_batch=1"),
        point(2, 2.0, equivalence="effective_batch=2"),
    )
    sgd = point(1, 5.0, equivalence="effective_batch=1 · optimizer=sgd")
    assert frontiers([small, large, sgd]) == {
        ("e", ""): (small, large),
        ("e", "optimizer=sgd"): (sgd,),
    }
    assert frontiers([small, large], within=lambda p: p.equivalences) == {
        ("e", "effective_batch=1"): (small,),
        ("e", "effective_batch=2"): (large,),
    }


def test_repeats_add_their_doubts_and_keep_the_largest_error() -> None:
    said = [["host-bound: dry"], ["unstable: ±2%"], []]
    records = [
        make_record(repeat=n, measurements={"warnings": warnings, "samples_per_second_ci95": error})
        for n, (warnings, error) in enumerate(zip(said, (0.01, 0.03, 0.02), strict=True))
    ]
    table = trials_table(records, COLUMNS)
    (combined,) = points(table.to_pylist(), axes_of(table))
    assert combined.warnings == ("host-bound: dry", "unstable: ±2%")
    assert combined.host_bound
    assert combined.samples_per_second_ci95 == 0.03
    assert not points(table.to_pylist()[1:], axes_of(table))[0].host_bound


def test_repeats_combine_to_median_speed_and_largest_memory() -> None:
    records = [
        make_record(repeat=n, speed=s, memory_mib=m)
        for n, (s, m) in enumerate([(90, 1), (100, 3), (500, 2)])
    ]
    table = trials_table(records, COLUMNS)
    (combined,) = points(table.to_pylist(), axes_of(table))
    assert (combined.samples_per_second, combined.memory_bytes, combined.repeats) == (
        100,
        603 * MIB,
        3,
    )


def test_memory_is_the_devices_only_where_every_row_of_the_environment_has_it() -> None:
    records = [make_record(micro_batch=1), make_record(micro_batch=2, gpu=False)]
    rows = trials_table(records, COLUMNS).to_pylist()
    assert memory_column(rows[:1]) == "device_peak_bytes"
    assert memory_column(rows) == "peak_allocated_bytes"
    assert memory_column([]) == "device_peak_bytes"


def test_unlike_versions_are_unlike_environments() -> None:
    records = [make_record(), make_record(environment={**H200, "torch": "2.12.0"})]
    table = trials_table(records, COLUMNS)
    assert len({p.environment_id for p in points(table.to_pylist(), axes_of(table))}) == 2
