"""What a search that makes its trials as it goes must keep to. A new one joins in ``MAKERS``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.search.base import Search
from orchestrator.search.batch_size.search import BatchSizeSearch
from orchestrator.search.round_robin import RoundRobin
from tests.support.devices import Device, make_trial

MakeSearch = Callable[[], Search]


def _make_repeat(micro_batch: int, accumulation: int) -> TrialSpec:
    return replace(make_trial(micro_batch, accumulation), repeat=1)


def _batch_size() -> Search:
    return BatchSizeSearch(make_trial, effective_batch=96)


def _two_batch_sizes() -> Search:
    return RoundRobin(
        [BatchSizeSearch(make_trial), BatchSizeSearch(_make_repeat, effective_batch=96)]
    )


MAKERS: dict[str, MakeSearch] = {
    "batch size": _batch_size,
    "two batch sizes": _two_batch_sizes,
}
every_maker = pytest.mark.parametrize("make", list(MAKERS.values()), ids=list(MAKERS))


def run(
    search: Search, *, at_once: int = 1, outcome: Outcome | None = None, at_most: int = 1000
) -> dict[str, TrialRecord]:
    """Ask and tell with ``at_once`` trials out; returns trial id -> record.

    ``outcome`` replaces the device's.
    """
    device = Device()
    records: dict[str, TrialRecord] = {}
    out: list[TrialSpec] = []
    while len(records) < at_most:
        while len(out) < at_once and (spec := search.ask()) is not None:
            assert spec.trial_id not in records, "asked for twice"
            assert spec.trial_id not in {other.trial_id for other in out}, "asked for twice"
            out.append(spec)
        if not out:
            assert search.exhausted, "it waits for nothing and is not exhausted"
            break
        record = device.run(out.pop(0))
        if outcome is not None and outcome is not Outcome.OK:
            record = replace(record, outcome=outcome, measurements={})
        records[record.trial_id] = record
        search.tell(record)
    return records


@every_maker
@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("outcome", [None, *Outcome])
def test_search_ends_whatever_the_outcomes(
    make: MakeSearch, at_once: int, outcome: Outcome | None
) -> None:
    search = make()
    records = run(search, at_once=at_once, outcome=outcome)
    assert records
    assert search.ask() is None
    assert list(search.pending()) == []
    assert not {record.trial_id for record in search.skipped()} & records.keys()


@every_maker
def test_search_is_not_changed_by_being_read(make: MakeSearch) -> None:
    search = make()
    assert not search.exhausted
    assert list(search.pending()) == list(search.pending())
    assert list(search.skipped()) == list(search.skipped())
    assert list(run(search)) == list(run(make()))


@every_maker
def test_search_ignores_unknown_and_repeated_records(make: MakeSearch) -> None:
    search = make()
    unknown = replace(make_trial(16, 1), repeat=99)
    search.tell(TrialRecord(spec=unknown, outcome=Outcome.OUT_OF_MEMORY))
    records = run(search)
    assert list(records) == list(run(make()))
    first = next(iter(records.values()))
    search.tell(replace(first, outcome=Outcome.OUT_OF_MEMORY, measurements={}))
    assert search.ask() is None


@every_maker
@settings(deadline=None, max_examples=50)
@given(cut=st.integers(0, 12))
def test_search_resumed_asks_for_nothing_twice(make: MakeSearch, cut: int) -> None:
    earlier = run(make(), at_most=cut)
    search = make()
    for record in earlier.values():
        search.tell(record)
    later = run(search)
    assert not earlier.keys() & later.keys()
    assert (earlier | later).keys() == run(make()).keys()
