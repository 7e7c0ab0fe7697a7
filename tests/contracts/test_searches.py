"""What every search must keep to, whatever comes of its trials. A new search joins by a row in SEARCHES."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.planning.settings import FollowUpSpec
from orchestrator.search.base import Search
from orchestrator.search.follow_ups import FollowUps
from orchestrator.search.frontier.search import Frontier
from orchestrator.search.grid import Grid
from orchestrator.search.optuna import Optuna
from orchestrator.search.per_gpu_model import PerModel
from tests.conftest import build_tiny_spec

MakeSearch = Callable[[Iterable[TrialSpec]], Search]
SEARCHES: dict[str, MakeSearch] = {
    "grid": Grid,
    "frontier": Frontier,
    "optuna": Optuna,
    "with follow-ups": lambda trials: FollowUps(
        Grid(trials), FollowUpSpec(), budgets=(2**22,), baseline={}
    ),
    "per model": lambda trials: PerModel(
        {"": Grid(trials), "another": Grid([])}, {"": 100, "another": 1}
    ),
    "optuna, all": partial(Optuna, share=1.0, sampler="nsga2"),
}

every_search = pytest.mark.parametrize("make", list(SEARCHES.values()), ids=list(SEARCHES))

PLAN = [
    build_tiny_spec({"micro_batch": micro_batch, "activations": activations})
    for micro_batch in (1, 2, 4, 8)
    for activations in ("keep", "checkpoint")
]
LARGEST_THAT_FITS = 4


def measured(spec: TrialSpec, outcome: Outcome | None = None) -> TrialRecord:
    """What a GPU that holds a micro-batch of four would have made of a trial; or another outcome."""
    fits = spec.micro_batch <= LARGEST_THAT_FITS
    found = outcome or (Outcome.OK if fits else Outcome.OUT_OF_MEMORY)
    figures = {
        "samples_per_second": 10.0 * spec.micro_batch,
        "peak_allocated_bytes": 2**20 * spec.micro_batch,
    }
    return TrialRecord(
        spec=spec,
        outcome=found,
        reason="" if found is Outcome.OK else found.value,
        measurements=figures if found is Outcome.OK else {},
    )


def ids(trials: Iterable[TrialSpec | TrialRecord]) -> list[str]:
    """Trial ids."""
    return [trial.trial_id for trial in trials]


def run_to_the_end(
    search: Search, *, at_once: int = 1, outcome: Outcome | None = None
) -> list[TrialSpec]:
    """Ask and tell, with some trials out at once, until the search is exhausted; what was run, in order.

    Beyond the first, those that are out have not begun when the search is told of it.
    """
    ran: list[TrialSpec] = []
    out: list[TrialSpec] = []
    while True:
        while len(out) < at_once and (spec := search.ask()) is not None:
            out.append(spec)
        if not out:
            assert search.exhausted, "it asks for nothing, waits for nothing and is not exhausted"
            return ran
        if (begun := search.reconsider(out.pop(0))) is not None:
            ran.append(begun)
            search.tell(measured(begun, outcome))


def assert_accounts_for_the_plan(
    search: Search, asked: Iterable[TrialSpec], told: Iterable[TrialRecord] = ()
) -> None:
    """Asked, told, skipped and unasked are disjoint and together the plan."""
    parts = [*ids(asked), *ids(told), *ids(search.skipped()), *ids(search.unasked())]
    assert sorted(parts) == sorted(ids(PLAN))


@every_search
@pytest.mark.parametrize("at_once", [1, 3, 100])
@pytest.mark.parametrize("outcome", [None, *Outcome])
def test_a_run_to_the_end_accounts_for_the_plan(
    make: MakeSearch, at_once: int, outcome: Outcome | None
) -> None:
    search = make(PLAN)
    asked = run_to_the_end(search, at_once=at_once, outcome=outcome)
    assert_accounts_for_the_plan(search, asked)
    assert list(search.unasked()) == []
    for record in search.skipped():
        assert record.outcome is Outcome.SKIPPED
        assert record.rule
        assert record.reason


@every_search
def test_an_exhausted_search_stays_exhausted(make: MakeSearch) -> None:
    search = make(PLAN)
    asked = run_to_the_end(search)
    assert search.ask() is None
    search.tell(measured(asked[0]))
    assert search.exhausted
    assert search.ask() is None


@every_search
def test_nothing_planned_is_exhausted_at_once(make: MakeSearch) -> None:
    search = make([])
    assert search.exhausted
    assert search.ask() is None
    assert ids(search.skipped()) == ids(search.unasked()) == []


@every_search
def test_everything_told_is_exhausted_at_once(make: MakeSearch) -> None:
    search = make(PLAN)
    for spec in PLAN:
        search.tell(measured(spec))
    assert search.ask() is None
    assert search.exhausted
    assert ids(search.skipped()) == ids(search.unasked()) == []


@every_search
def test_looking_changes_nothing(make: MakeSearch) -> None:
    search, control = make(PLAN), make(PLAN)
    list(search.unasked()), list(search.skipped()), search.exhausted
    assert ids(run_to_the_end(search)) == ids(run_to_the_end(control))


@every_search
@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_cut_short_anywhere_it_accounts_for_the_plan(make: MakeSearch, data: st.DataObject) -> None:
    search = make(PLAN)
    earlier = [
        measured(spec)
        for spec in data.draw(st.lists(st.sampled_from(PLAN), unique_by=id), label="earlier")
    ]
    for record in earlier:
        search.tell(record)
    asked: list[TrialSpec] = []
    out: list[TrialSpec] = []
    for action in data.draw(
        st.lists(st.sampled_from(["ask", "reconsider", "tell"]), max_size=40), label="actions"
    ):
        if action == "ask" and (spec := search.ask()) is not None:
            assert spec.trial_id not in ids(asked), "asked for twice"
            assert spec.trial_id not in ids(earlier), "asked for though it was told"
            asked.append(spec)
            out.append(spec)
        elif action == "reconsider" and out:
            asked.remove(was := out.pop(data.draw(st.integers(0, len(out) - 1), label="which")))
            if (spec := search.reconsider(was)) is not None:
                assert spec.trial_id not in ids([*asked, *earlier]), "there already"
                asked.append(spec)
                out.append(spec)
        elif action == "tell" and out:
            search.tell(measured(out.pop(data.draw(st.integers(0, len(out) - 1), label="which"))))
        if search.exhausted:
            assert list(search.unasked()) == []
    assert_accounts_for_the_plan(search, asked, earlier)
