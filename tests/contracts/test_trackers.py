"""What every tracker must keep to: its own declared columns, nothing else, and silence where it has no instrument."""

from __future__ import annotations

import pytest
import torch

from jobs.record import Column
from jobs.trackers import TRACKERS, Moment, Tracker
from jobs.trackers.allocator import Allocator
from jobs.trackers.device import Device
from jobs.trial import columns, effective_config

every_tracker = pytest.mark.parametrize("kind", TRACKERS, ids=lambda kind: kind.__name__)
no_cuda = pytest.mark.skipif(
    torch.cuda.is_available(), reason="is about machines without a CUDA device"
)

PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "int64": int,
    "float64": (int, float),
    "string": str,
    "bool": bool,
    "list<double>": list,
    "list<string>": list,
}
UNITS = {"", "B", "s", "1/s", "J", "°C", "MHz", "MiB", "%"}


def all_columns() -> list[Column]:
    """Every column that a row's measurements may have."""
    return [
        *(column for kind in TRACKERS for column in kind.columns),
        *effective_config.COLUMNS,
        *columns.COLUMNS,
    ]


def play(tracker: Tracker, until: Moment | None = None) -> None:
    """Every moment of a trial of two steps on the CPU, in order, up to and including ``until``."""
    inputs = {
        "input_ids": torch.ones(2, 3, dtype=torch.int64),
        "attention_mask": torch.ones(2, 3, dtype=torch.int64),
    }
    for number, moment in enumerate(Moment):
        tracker.at(moment, float(number))
        if moment is until:
            return
        if moment is Moment.TRAIN_BEGIN:
            for warmup_left in (1, 0):
                tracker.step_begin(warmup_left)
                tracker.data_wait(0.5)
                tracker.micro_batch(inputs)
                tracker.loss(torch.tensor(1.5))
                tracker.step_end()
            tracker.counted(number + 1.0, number + 2.0)


def assert_keeps_to_its_columns(tracker: Tracker) -> None:
    """Measurements are declared, and of their declared types."""
    declared = {column.name: column for column in tracker.columns}
    for name, value in tracker.measurements().items():
        assert name in declared, f"{name} is not declared"
        assert isinstance(value, PYTHON_TYPES[declared[name].type]), f"{name} is {value!r}"
        assert not isinstance(value, bool) or declared[name].type == "bool"


def test_no_two_columns_have_one_name() -> None:
    names = [column.name for column in all_columns()]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("column", all_columns(), ids=lambda column: column.name)
def test_a_column_says_what_it_is(column: Column) -> None:
    assert column.doc.strip()
    assert "\n" not in column.doc
    assert column.unit in UNITS
    for ending, unit in {
        "_bytes": "B",
        "_seconds": "s",
        "_mhz": "MHz",
        "_joules": "J",
        "_celsius": "°C",
    }.items():
        assert not column.name.endswith(ending) or column.unit == unit


@every_tracker
def test_a_trial_that_never_began_keeps_to_the_columns(kind: type[Tracker]) -> None:
    with kind() as tracker:
        assert_keeps_to_its_columns(tracker)
        assert all(not values for values in tracker.series().values())


@every_tracker
@pytest.mark.parametrize("until", Moment)
def test_a_trial_that_ends_anywhere_keeps_to_the_columns(
    kind: type[Tracker], until: Moment
) -> None:
    with kind() as tracker:
        play(tracker, until)
        assert_keeps_to_its_columns(tracker)


@every_tracker
def test_looking_twice_sees_the_same(kind: type[Tracker]) -> None:
    with kind() as tracker:
        play(tracker)
        assert tracker.measurements().keys() == tracker.measurements().keys()
        assert tracker.series() == tracker.series()


@every_tracker
def test_a_whole_trial_has_a_value_a_step(kind: type[Tracker]) -> None:
    with kind() as tracker:
        play(tracker)
        assert {len(values) for values in tracker.series().values()} <= {2}


@every_tracker
def test_an_error_passes_through(kind: type[Tracker]) -> None:
    def fail() -> None:
        with kind() as tracker:
            play(tracker, Moment.TRAIN_END)
            raise ValueError("the trial's own")

    with pytest.raises(ValueError, match="the trial's own"):
        fail()


@no_cuda
@pytest.mark.parametrize("kind", [Allocator, Device], ids=lambda kind: kind.__name__)
def test_a_gpus_instrument_is_silent_without_one(kind: type[Tracker]) -> None:
    with kind() as tracker:
        play(tracker)
        assert tracker.measurements() == {}
        assert tracker.series() == {}
    assert not torch.cuda.is_initialized()
