"""What a search that makes its trials as it goes must keep to. A new one joins by a row in MAKERS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.search.base import Search
from orchestrator.search.batch_size.search import BatchSize
from orchestrator.search.round_robin import Together
from tests.support.devices import Device, make_trial


def _another(micro_batch: int, accumulation: int) -> TrialSpec:
    return replace(make_trial(micro_batch, accumulation), repeat=1)


MAKERS: dict[str, Callable[[], Search]] = {
    "batch size": lambda: BatchSize(make_trial, effective_batch=96),
    "batch sizes together": lambda: Together(
        [BatchSize(make_trial), BatchSize(_another, effective_batch=96)]
    ),
}
every_maker = pytest.mark.parametrize("make", list(MAKERS.values()), ids=list(MAKERS))
OUTCOMES = [None, *Outcome]


def run(
    search: Search, *, at_once: int = 1, outcome: Outcome | None = None, at_most: int = 1000
) -> dict[str, TrialRecord]:
    """Ask and tell, some trials out at once; the records told, by trial id. ``outcome`` replaces the device's."""
    device = Device()
    told: dict[str, TrialRecord] = {}
    out: list[TrialSpec] = []
    while len(told) < at_most:
        while len(out) < at_once and (spec := search.ask()) is not None:
            assert spec.trial_id not in told, "asked for twice"
            assert spec.trial_id not in {other.trial_id for other in out}, "asked for twice"
            out.append(spec)
        if not out:
            assert search.exhausted, "it asks for nothing, waits for nothing and is not exhausted"
            break
        record = device.run(out.pop(0))
        if outcome is not None and outcome is not Outcome.OK:
            record = replace(record, outcome=outcome, measurements={})
        told[record.trial_id] = record
        search.tell(record)
    return told


@every_maker
@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_it_comes_to_an_end_whatever_comes_of_its_trials(
    make: Callable[[], Search], at_once: int, outcome: Outcome | None
) -> None:
    search = make()
    told = run(search, at_once=at_once, outcome=outcome)
    assert told
    assert search.ask() is None
    assert list(search.unasked()) == []
    assert not {record.trial_id for record in search.skipped()} & told.keys()


@every_maker
def test_looking_changes_nothing(make: Callable[[], Search]) -> None:
    search, control = make(), make()
    list(search.unasked()), list(search.skipped()), search.exhausted
    assert list(run(search)) == list(run(control))


@every_maker
def test_strangers_and_repetitions_are_ignored(make: Callable[[], Search]) -> None:
    search, control = make(), make()
    stranger = replace(make_trial(16, 1), repeat=99)
    search.tell(TrialRecord(spec=stranger, outcome=Outcome.OUT_OF_MEMORY))
    told = run(search)
    assert list(told) == list(run(control))
    search.tell(replace(next(iter(told.values())), outcome=Outcome.OUT_OF_MEMORY, measurements={}))
    assert search.ask() is None


@every_maker
@settings(deadline=None, max_examples=50)
@given(cut=st.integers(0, 12))
def test_what_was_measured_before_is_not_asked_for_again(
    make: Callable[[], Search], cut: int
) -> None:
    earlier = run(make(), at_most=cut)
    search = make()
    for record in earlier.values():
        search.tell(record)
    later = run(search)
    assert not earlier.keys() & later.keys()
    assert (earlier | later).keys() == run(make()).keys()
