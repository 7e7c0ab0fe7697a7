"""What every tracker must keep to: its own declared columns, and silence without its instrument."""

from typing import get_args

import pytest
import torch

from jobs.record import Column
from jobs.trackers import TRACKERS, Moment, Tracker
from jobs.trackers.cuda_allocator import Allocator
from jobs.trackers.device import Device
from jobs.trackers.launch_bound import LaunchBound
from jobs.trackers.tracker import Phase
from jobs.trial import effective_config, trial_columns

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
UNIT_OF_ENDING = {
    "_bytes": "B",
    "_seconds": "s",
    "_mhz": "MHz",
    "_joules": "J",
    "_celsius": "°C",
    "_per_second": "1/s",
}


def all_columns() -> list[Column]:
    """Every column that a row's measurements may have."""
    of_trackers = [column for kind in TRACKERS for column in kind.columns]
    return [*of_trackers, *effective_config.COLUMNS, *trial_columns.COLUMNS]


def run_trial(tracker: Tracker, moments: int = len(Moment)) -> None:
    """The first moments of a trial of two steps on the CPU, in order."""
    for index, moment in enumerate(list(Moment)[:moments]):
        tracker.at(moment, float(index))
        if moment is Moment.TRAIN_BEGIN:
            inputs = {
                "input_ids": torch.ones(2, 3, dtype=torch.int64),
                "attention_mask": torch.ones(2, 3, dtype=torch.int64),
            }
            for warmup_left in (1, 0):
                tracker.step_begin(warmup_left)
                tracker.data_wait(0.5)
                tracker.micro_batch(inputs)
                for phase in get_args(Phase):
                    tracker.phase(phase)
                tracker.loss(torch.tensor(1.5))
                tracker.step_end()
            tracker.counted(index + 1.0, index + 2.0)


def test_columns_have_one_style():
    """They become the schema page: sentence case without a full stop, units by name."""
    names = [column.name for column in all_columns()]
    assert len(set(names)) == len(names)
    for column in all_columns():
        assert column.doc[0].isupper(), column.name
        assert not column.doc.endswith("."), column.name
        for ending, unit in UNIT_OF_ENDING.items():
            assert not column.name.endswith(ending) or column.unit == unit, column.name


@every_tracker
@pytest.mark.parametrize("moments", range(len(Moment) + 1))
def test_tracker_of_a_cut_trial_keeps_to_its_columns(kind, moments):
    with kind() as tracker:
        run_trial(tracker, moments)
        # All measurements have a declared column, and its type.
        declared = {column.name: column for column in tracker.columns}
        for name, value in tracker.measurements().items():
            assert name in declared, f"{name} is not declared"
            assert isinstance(value, PYTHON_TYPES[declared[name].type]), f"{name} is {value!r}"
            assert not isinstance(value, bool) or declared[name].type == "bool"
        assert moments or not any(tracker.series().values())


@every_tracker
def test_tracker_read_twice_gives_the_same_with_a_value_per_step(kind):
    with kind() as tracker:
        run_trial(tracker)
        first = tracker.measurements().keys(), tracker.series()
        assert (tracker.measurements().keys(), tracker.series()) == first
        assert {len(values) for values in tracker.series().values()} <= {2}


@every_tracker
def test_tracker_lets_an_error_pass(kind):
    def fail() -> None:
        with kind() as tracker:
            run_trial(tracker)
            raise ValueError("of the trial")

    with pytest.raises(ValueError, match="of the trial"):
        fail()


@no_cuda
@pytest.mark.parametrize("kind", [Allocator, Device, LaunchBound], ids=lambda kind: kind.__name__)
def test_gpu_tracker_without_a_gpu_is_silent(kind):
    with kind() as tracker:
        run_trial(tracker)
        assert tracker.measurements() == {}
        assert tracker.series() == {}
    assert not torch.cuda.is_initialized()
