"""What every search must keep to, whatever comes of its trials.

Every kind that a sweep can name is tested as its factory builds it. Wrappers join by a row in
SEARCHES. Searches that make their trials as they go have no plan to account for: they are MAKERS.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.record import Outcome, Provenance, TrialRecord
from jobs.spec import DataSpec, ModelSpec, TrialSpec
from orchestrator.planning.keys.search_options import SEARCH_KINDS
from orchestrator.planning.settings import SweepConfig
from orchestrator.search.base import Grid, Search
from orchestrator.search.batch_size.batch_size_search import BatchSizeGoal, BatchSizeSearch
from orchestrator.search.registry import build_search
from orchestrator.search.several import PerGpuModel, RoundRobin
from tests.conftest import build_tiny_spec
from tests.support.devices import Device, make_trial

MakeSearch = Callable[[Sequence[TrialSpec]], Search]

PLAN = [
    build_tiny_spec({"micro_batch": micro_batch, "activations": activations})
    for micro_batch in (1, 2, 4, 8)
    for activations in ("keep", "checkpoint")
]
LARGEST_THAT_FITS = 4


def built(kind: str, trials: Sequence[TrialSpec], *, with_follow_ups: bool = False) -> Search:
    """A search as a sweep builds it, with the default options of its kind."""
    config = SweepConfig(
        name="contract",
        source=Path("contract.yaml"),
        model=ModelSpec(task="masked-lm"),
        data=DataSpec(),
        budgets=(2**22,),
        search=SEARCH_KINDS[kind](),
    )
    return build_search(trials, config, with_follow_ups=with_follow_ups)


def on_two_gpu_models(trials: Sequence[TrialSpec]) -> Search:
    """All trials for one model, none for the other."""
    return PerGpuModel({"": Grid(trials), "another": Grid([])}, {"": 100, "another": 1})


def halves(trials: Sequence[TrialSpec]) -> Search:
    return RoundRobin([Grid(trials[::2]), Grid(trials[1::2])])


SEARCHES: dict[str, MakeSearch] = {
    **{kind: partial(built, kind) for kind in SEARCH_KINDS},
    "grid with follow-ups": partial(built, "grid", with_follow_ups=True),
    "frontier with follow-ups": partial(built, "frontier", with_follow_ups=True),
    "best with follow-ups": partial(built, "best", with_follow_ups=True),
    "per GPU model": on_two_gpu_models,
    "round robin": halves,
}
every_search = pytest.mark.parametrize("make", list(SEARCHES.values()), ids=list(SEARCHES))


def batch_size() -> Search:
    return BatchSizeSearch(make_trial, BatchSizeGoal(effective_batch=96))


def two_batch_sizes() -> Search:
    def make_repeat(micro_batch: int, accumulation: int) -> TrialSpec:
        return replace(make_trial(micro_batch, accumulation), repeat=1)

    return RoundRobin([BatchSizeSearch(make_repeat), batch_size()])


every_maker = pytest.mark.parametrize("make", [batch_size, two_batch_sizes])


def record_of(spec: TrialSpec, outcome: Outcome | None = None) -> TrialRecord:
    """A trial on a GPU that holds a micro-batch of four; or with another outcome."""
    fits = spec.micro_batch <= LARGEST_THAT_FITS
    if outcome is None:
        outcome = Outcome.OK if fits else Outcome.OUT_OF_MEMORY
    figures = {
        "samples_per_second": 10.0 * spec.micro_batch,
        "peak_allocated_bytes": 2**20 * spec.micro_batch,
    }
    is_ok = outcome is Outcome.OK
    return TrialRecord(
        spec=spec,
        outcome=outcome,
        reason="" if is_ok else outcome.value,
        measurements=figures if is_ok else {},
        provenance=Provenance(slot_seconds=1.0),
    )


def on_device(spec: TrialSpec, outcome: Outcome | None = None) -> TrialRecord:
    """A trial on a simulated device; or with another outcome."""
    record = Device().run(spec)
    if outcome in (None, Outcome.OK):
        return record
    return replace(record, outcome=outcome, measurements={})


def ids(trials: Iterable[TrialSpec | TrialRecord]) -> list[str]:
    return [trial.trial_id for trial in trials]


def run_to_the_end(
    search: Search,
    *,
    at_once: int = 1,
    outcome: Outcome | None = None,
    run: Callable[[TrialSpec, Outcome | None], TrialRecord] = record_of,
) -> list[TrialSpec]:
    """Ask and tell, with some trials outstanding, until the search is exhausted.

    Returns what was run, in order: each trial once.
    """
    ran = []
    outstanding = []
    while True:
        while len(outstanding) < at_once and (trial := search.ask()) is not None:
            outstanding.append(trial)
        if not outstanding:
            assert search.exhausted, "it asks for nothing, waits for nothing and is not exhausted"
            assert len(set(ids(ran))) == len(ran)
            return ran
        # Beyond the first, the outstanding trials have not started when the search gets its record.
        started = search.reconsider(outstanding.pop(0))
        if started is not None:
            ran.append(started)
            search.tell(run(started, outcome))


def assert_accounts_for_the_plan(
    search: Search, asked: Iterable[TrialSpec], earlier: Iterable[TrialRecord] = ()
) -> None:
    """Asked, recorded earlier, skipped and pending are disjoint and together the plan."""
    parts = [*ids(asked), *ids(earlier), *ids(search.skipped()), *ids(search.pending())]
    assert sorted(parts) == sorted(ids(PLAN))


@every_search
@pytest.mark.parametrize("at_once", [1, 3, 100])
@pytest.mark.parametrize("outcome", [None, *Outcome])
def test_search_run_to_its_end_accounts_for_the_plan(make, at_once, outcome):
    search = make(PLAN)
    asked = run_to_the_end(search, at_once=at_once, outcome=outcome)
    assert_accounts_for_the_plan(search, asked)
    assert list(search.pending()) == []
    for record in search.skipped():
        assert record.outcome is Outcome.SKIPPED
        assert record.rule
        assert record.reason


@every_search
def test_search_at_its_end_has_counted_the_plan_and_stays_exhausted(make):
    search = make(PLAN)
    asked = run_to_the_end(search)
    summary = search.summary()
    if summary:
        assert summary["planned"] == len(PLAN)
        assert summary["measured"] + sum(summary["skipped"].values()) == len(PLAN)
    search.tell(record_of(asked[0]))
    assert search.exhausted
    assert search.ask() is None


@every_search
@pytest.mark.parametrize("trials", [[], PLAN], ids=["no_trials", "every_record"])
def test_search_with_nothing_to_run_is_exhausted(make, trials):
    search = make(trials)
    for spec in trials:
        search.tell(record_of(spec))
    assert search.ask() is None
    assert search.exhausted
    assert ids(search.skipped()) == ids(search.pending()) == []


@every_search
def test_search_that_is_read_and_informed_of_foreign_trials_decides_the_same(make):
    search, control = make(PLAN), make(PLAN)
    list(search.pending()), list(search.skipped()), search.exhausted, search.summary()
    search.tell(record_of(build_tiny_spec({"micro_batch": 16})))
    assert ids(run_to_the_end(search)) == ids(run_to_the_end(control))


@every_search
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_search_cut_short_accounts_for_the_plan(make, data):
    search = make(PLAN)
    reused = data.draw(st.lists(st.sampled_from(PLAN), unique_by=id), label="earlier")
    earlier = [record_of(spec) for spec in reused]
    for record in earlier:
        search.tell(record)
    actions = st.lists(st.sampled_from(["ask", "reconsider", "tell"]), max_size=40)
    asked = []
    outstanding = []
    for action in data.draw(actions, label="actions"):
        trial = None
        if action == "ask":
            trial = search.ask()
        elif outstanding:
            index = data.draw(st.integers(0, len(outstanding) - 1), label="which")
            own = outstanding.pop(index)
            if action == "tell":
                search.tell(record_of(own))
            else:
                asked.remove(own)
                trial = search.reconsider(own)
        if trial is not None:
            assert trial.trial_id not in ids([*asked, *earlier]), "asked for already"
            asked.append(trial)
            outstanding.append(trial)
        if search.exhausted:
            assert list(search.pending()) == []
    assert_accounts_for_the_plan(search, asked, earlier)


@every_maker
@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("outcome", [None, *Outcome])
def test_maker_ends_whatever_the_outcomes_and_however_often_it_is_read(make, at_once, outcome):
    search, control = make(), make()
    list(search.pending()), list(search.skipped()), search.exhausted
    ran, expected = (
        ids(run_to_the_end(one, at_once=at_once, outcome=outcome, run=on_device))
        for one in (search, control)
    )
    assert ran == expected != []
    assert search.ask() is None
    assert list(search.pending()) == []
    assert not {*ids(search.skipped())} & {*ran}


@every_maker
@pytest.mark.parametrize("cut", range(0, 13, 3))
def test_maker_resumed_asks_for_nothing_twice(make, cut):
    whole = run_to_the_end(make(), run=on_device)
    search = make()
    unknown = replace(make_trial(16, 1), repeat=99)
    search.tell(TrialRecord(spec=unknown, outcome=Outcome.OUT_OF_MEMORY))
    for spec in whole[:cut]:
        search.tell(on_device(spec))
    later = run_to_the_end(search, run=on_device)
    assert sorted(ids([*whole[:cut], *later])) == sorted(ids(whole))
    search.tell(on_device(whole[0], Outcome.OUT_OF_MEMORY))
    assert search.ask() is None
