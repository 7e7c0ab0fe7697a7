"""A session without Ray: budget, reuse, interruption, and one record for every planned trial."""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.record import Outcome, TrialRecord
from jobs.spec import FollowUp, Purpose, TrialSpec
from orchestrator.running.close_reason import CloseReason
from orchestrator.running.session import Session
from orchestrator.search.base import TOO_SLOW, Grid, Search
from orchestrator.storage.run_folder import RunFolder, RunFolderError
from orchestrator.units import GIB
from tests.conftest import build_tiny_spec
from tests.support.clock import Clock
from tests.support.observers import Recorder
from tests.support.records import ended

Complete = Callable[[TrialRecord, bool], TrialRecord | None]
HERE = {"gpu_model": "", "torch": "2"}
ELSEWHERE = {"gpu_model": "", "torch": "3"}
TRIALS = [build_tiny_spec(repeat=number) for number in range(6)]


class Sweep:
    def __init__(
        self,
        folder: Path,
        trials: Iterable[TrialSpec] = TRIALS,
        budget: float | None = None,
        make: Callable[[Iterable[TrialSpec]], Search] = Grid,
        complete: Complete = lambda record, _: record,
    ) -> None:
        self.clock = Clock()
        self.observer = Recorder()
        self.observer.completed = complete  # type: ignore[method-assign]
        self.folder = RunFolder(folder)
        with self.folder.locked():
            pass
        self.session = Session(
            make(trials),
            self.folder,
            [self.observer],
            time_budget_seconds=budget,
            clock=self.clock,
        )

    def outcomes(self) -> dict[str, tuple[Outcome, str]]:
        """Trial id -> outcome and rule, as the folder has them."""
        records = self.folder.records()
        return {trial_id: (own.outcome, own.rule) for trial_id, own in records.items()}


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path)


record_of = functools.partial(ended, environment=HERE)


def dispatch(sweep: Sweep) -> TrialSpec:
    """The next trial, of which there has to be one."""
    spec = sweep.session.next_trial()
    assert spec is not None
    return spec


def remaining(sweep: Sweep) -> Iterator[TrialSpec]:
    while (spec := sweep.session.next_trial()) is not None:
        yield spec


def test_session_with_spent_budget_starts_nothing_more(tmp_path):
    sweep = Sweep(tmp_path, budget=10.0)
    first = dispatch(sweep)
    assert sweep.session.seconds_left() == 10.0
    ahead = sweep.session.next_trials()
    sweep.clock.now += 10.0
    assert sweep.session.start(ahead) == ()
    assert sweep.session.next_trial() is None
    assert sweep.session.finished
    sweep.session.interrupt()
    assert sweep.session.close_reason is CloseReason.TIME_BUDGET, "the first reason stays"
    sweep.session.ended(record_of(first))
    sweep.session.write_missing_records()
    expected = {trial.trial_id: (Outcome.SKIPPED, "time_budget") for trial in TRIALS}
    assert sweep.outcomes() == {**expected, first.trial_id: (Outcome.OK, "")}
    reason = sweep.folder.records()[TRIALS[1].trial_id].reason
    assert reason == "the sweep's time budget ended before this trial could start"


class Impatient(Grid):
    """A grid that allows each trial 20 seconds."""

    def allowed_seconds(self, spec: TrialSpec) -> float:
        return 20.0


def test_trial_that_takes_longer_than_its_search_allows_is_skipped_as_too_slow(tmp_path):
    sweep = Sweep(tmp_path, budget=100.0, make=Impatient)
    first, second, third = dispatch(sweep), dispatch(sweep), dispatch(sweep)
    sweep.session.start([first, second])
    assert sweep.session.seconds_for([first]) == 20.0
    slow = replace(record_of(first, Outcome.TIMED_OUT, seconds=20.0), phase="steps")
    known = {"steps": {"step_seconds": [3.0, 2.0]}, "measurements": {"device_peak_bytes": GIB}}
    sweep.session.ended(replace(slow, **known))
    sweep.clock.now += 90.0
    assert sweep.session.seconds_for([second]) == 10.0
    sweep.session.ended(record_of(second, Outcome.TIMED_OUT, seconds=10.0))
    records = sweep.folder.records()
    slow = records[first.trial_id]
    assert (slow.outcome, slow.rule) == (Outcome.SKIPPED, TOO_SLOW)
    so_far = "(2 steps done, the last in 2.0 s, 1 GiB at most until then)"
    assert slow.reason.endswith(f"20 s, and it was still in phase steps {so_far}")
    assert records[second.trial_id].rule == "time_budget"
    own_timeout = third.measure.timeout_seconds
    sweep.session.ended(record_of(third, Outcome.TIMED_OUT, seconds=own_timeout))
    assert sweep.folder.records()[third.trial_id].outcome is Outcome.TIMED_OUT


def test_interrupted_session_lets_running_trials_finish(sweep):
    first, ahead = dispatch(sweep), dispatch(sweep)
    assert sweep.session.start([first]) == (first,)
    sweep.session.interrupt()
    assert sweep.session.close_reason is CloseReason.INTERRUPTED
    assert sweep.session.start([ahead]) == (), "it was given out, but nothing new begins"
    assert sweep.session.next_trial() is None
    assert "finishing 1 running trial;" in sweep.observer.messages[0]
    sweep.session.ended(record_of(first))
    sweep.session.write_missing_records()
    expected = {trial.trial_id: (Outcome.SKIPPED, "interrupted") for trial in TRIALS}
    assert sweep.outcomes() == {**expected, first.trial_id: (Outcome.OK, "")}


REPEATED_BY_A_SECOND_RUN = {Outcome.CRASHED, Outcome.FAILED, Outcome.TIMED_OUT}
REPEATED_BY_A_SECOND_RUN |= {Outcome.HOST_OUT_OF_MEMORY}


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("resume", [True, False])
def test_reuse_keeps_final_outcomes(outcome, resume, sweep):
    earlier = {TRIALS[0].trial_id: record_of(TRIALS[0], outcome)}
    is_kept = outcome.is_final and (resume or outcome not in REPEATED_BY_A_SECOND_RUN)
    assert sweep.session.reuse(earlier, [HERE], resume=resume) == is_kept
    assert (TRIALS[0] not in list(remaining(sweep))) == is_kept


@pytest.mark.parametrize("resume", [True, False])
def test_reuse_keeps_planned_records_of_any_node_that_is_there(resume, sweep):
    unplanned = build_tiny_spec(repeat=99)
    measured = [record_of(TRIALS[0], environment=ELSEWHERE), record_of(TRIALS[1])]
    earlier = {own.trial_id: own for own in (*measured, record_of(unplanned))}
    assert sweep.session.reuse(earlier, [HERE], resume=resume) == 1
    assert list(remaining(sweep)) == [TRIALS[0], *TRIALS[2:]]
    again = Sweep(sweep.folder.path)
    assert again.session.reuse(earlier, [HERE, ELSEWHERE], resume=resume) == 2


def test_earlier_record_stays_if_its_trial_is_not_repeated(tmp_path):
    sweep = Sweep(tmp_path, budget=5.0)
    failed = record_of(TRIALS[0], Outcome.FAILED)
    sweep.folder.write(failed)
    assert sweep.session.reuse({failed.trial_id: failed}, [HERE], resume=False) == 0
    sweep.clock.now += 10.0
    assert sweep.session.next_trial() is None
    sweep.session.write_missing_records()
    outcomes = sweep.outcomes()
    assert outcomes.pop(failed.trial_id) == (Outcome.FAILED, "")
    assert set(outcomes.values()) == {(Outcome.SKIPPED, "time_budget")}


class PrefersLast(Grid):
    """A search that wants its last trial instead of its first, and then nothing."""

    def reconsider(self, spec: TrialSpec) -> TrialSpec | None:
        others = [planned for planned in self.pending() if planned == TRIALS[-1]]
        if not others:
            return None
        self.tell(record_of(others[0]))  # no longer pending
        return others[0]


def test_start_asks_the_search_again(tmp_path):
    session = Sweep(tmp_path, make=PrefersLast).session
    dispatched = session.next_trials()
    assert dispatched == (TRIALS[0],)
    assert session.start(dispatched) == (TRIALS[-1],)
    assert set(session.dispatched) == {TRIALS[-1].trial_id}
    assert session.start(dispatched) == (), "nothing is worth running any more"


def test_start_again_after_a_lost_slot_asks_no_search(tmp_path):
    session = Sweep(tmp_path, make=PrefersLast).session
    started = session.start(session.next_trials())
    session.requeue(started)
    assert session.start(session.next_trials()) == started == (TRIALS[-1],)
    session.requeue(started)
    session.close(CloseReason.INTERRUPTED)
    assert session.start(started) == started, "it had begun before"


def test_next_trials_gives_all_rounds_of_a_tie_break(tmp_path):
    compared = (TRIALS[0].trial_id, TRIALS[1].trial_id)
    follow_ups = [
        FollowUp(
            follows_trial=trial_id, purpose=Purpose.TIE_BREAK, compared_with=compared, round=number
        )
        for number in range(2)
        for trial_id in compared
    ]
    rounds = [replace(TRIALS[0], follow_up=follow_up) for follow_up in follow_ups]
    session = Sweep(tmp_path, [*rounds, TRIALS[2]]).session
    assert session.next_trials() == tuple(rounds)
    assert session.next_trials() == (TRIALS[2],)
    assert session.next_trials() == ()


def refuse(record: TrialRecord) -> TrialRecord:
    raise RunFolderError("no space left")


def test_full_disk_closes_the_session_and_is_raised_at_the_end(sweep, monkeypatch):
    first = dispatch(sweep)
    with monkeypatch.context() as patch:
        patch.setattr(sweep.folder, "write", refuse)
        sweep.session.ended(record_of(first))
    assert sweep.session.close_reason is CloseReason.UNWRITABLE
    assert sweep.observer.messages == ["no space left; nothing new is started"]
    assert ("ended", first.trial_id) not in sweep.observer.events
    with pytest.raises(RunFolderError, match="no space left"):
        sweep.session.write_missing_records()
    expected = {trial.trial_id: (Outcome.SKIPPED, "unwritable") for trial in TRIALS}
    assert sweep.outcomes() == {**expected, first.trial_id: (Outcome.OK, "")}, "there is room again"
    assert ("ended", first.trial_id) in sweep.observer.events


@pytest.mark.parametrize("is_ready", [True, False])
def test_next_trials_do_not_wait_for_what_a_record_lacks(tmp_path, is_ready):
    known = []

    def complete(record: TrialRecord, waits: bool) -> TrialRecord | None:
        is_known = waits or record.trial_id in known
        return replace(record, reason="complete") if is_known else None

    sweep = Sweep(tmp_path, TRIALS[:2], complete=complete)
    first, second = dispatch(sweep), dispatch(sweep)
    sweep.session.ended(record_of(first))
    assert not sweep.outcomes()
    assert not sweep.session.finished
    if is_ready:
        known.append(first.trial_id)
        assert sweep.session.next_trial() is None
        assert list(sweep.outcomes()) == [first.trial_id]
    sweep.session.ended(record_of(second))
    # Nothing runs any more, so there is time to wait.
    assert sweep.session.finished
    records = sweep.folder.records()
    assert {own: records[own].reason for own in records} == dict.fromkeys(
        (first.trial_id, second.trial_id), "complete"
    )


def test_next_trial_waits_for_what_two_records_lack(tmp_path):
    sweep = Sweep(tmp_path, complete=lambda record, waits: record if waits else None)
    for count in (0, 0, 2):
        spec = dispatch(sweep)
        assert len(sweep.outcomes()) == count
        sweep.session.ended(record_of(spec))


def test_interrupted_session_writes_what_it_waited_for(tmp_path):
    sweep = Sweep(tmp_path, complete=lambda record, waits: record if waits else None)
    spec = dispatch(sweep)
    sweep.session.ended(record_of(spec))
    sweep.session.interrupt()
    sweep.session.write_missing_records()
    assert sweep.outcomes()[spec.trial_id] == (Outcome.OK, "")


def test_trial_whose_record_is_refused_for_good_has_not_ended(sweep, monkeypatch):
    first = dispatch(sweep)
    monkeypatch.setattr(sweep.folder, "write", refuse)
    sweep.session.ended(record_of(first))
    with pytest.raises(RunFolderError, match="no space left; not recorded: 1 measured trial"):
        sweep.session.write_missing_records()
    assert "ended" not in {kind for kind, _ in sweep.observer.events}


def test_observers_get_everything_in_order(sweep):
    kept = record_of(TRIALS[0])
    sweep.session.reuse({kept.trial_id: kept}, [HERE], resume=True)
    (spec,) = sweep.session.start(sweep.session.next_trials())
    sweep.session.message("a node joined")
    sweep.session.ended(record_of(spec))
    sweep.session.interrupt()
    sweep.session.write_missing_records()
    sweep.session.tell_closed()
    ids = [trial.trial_id for trial in TRIALS]
    assert sweep.observer.events[:4] == [
        ("settled", ids[0]),
        ("started", ids[1]),
        ("message", "a node joined"),
        ("ended", ids[1]),
    ]
    assert sweep.observer.events[5:] == [*(("settled", name) for name in ids[2:]), ("closed", "")]


@settings(max_examples=30)
@given(
    actions=st.lists(st.sampled_from(["ask", "end", "fail", "pass time", "interrupt"]), max_size=30)
)
def test_every_trial_has_one_record_whatever_happens(actions, tmp_path_factory):
    sweep = Sweep(tmp_path_factory.mktemp("run"), budget=5.0)
    running: list[TrialSpec] = []
    finished: list[str] = []
    for action in actions:
        if action == "ask":
            running += sweep.session.start(sweep.session.next_trials())
        elif action in ("end", "fail") and running:
            spec = running.pop(0)
            finished.append(spec.trial_id)
            outcome = Outcome.OK if action == "end" else Outcome.FAILED
            sweep.session.ended(record_of(spec, outcome))
        elif action == "pass time":
            sweep.clock.now += 1.0
        elif action == "interrupt":
            sweep.session.interrupt()
    sweep.session.write_missing_records()
    outcomes = sweep.outcomes()
    assert set(outcomes) == {trial.trial_id for trial in TRIALS}
    assert {name for name, (outcome, _) in outcomes.items() if outcome.is_final} == set(finished)


class MakesTrials(Grid):
    """A search that makes its trials as it goes: none is planned."""

    def pending(self) -> Iterable[TrialSpec]:
        return ()


class ChoosesFromASpace(MakesTrials):
    """A search whose plan is a space to choose from."""

    def considers(self, spec: TrialSpec) -> bool:
        return spec in TRIALS


@pytest.mark.parametrize(("make", "at_once"), [(MakesTrials, 0), (ChoosesFromASpace, 2)])
def test_search_that_makes_its_trials_meets_earlier_records(make, at_once, tmp_path):
    """When it asks for them; at once, if they are of its space."""
    sweep = Sweep(tmp_path, make=make)
    unplanned = build_tiny_spec(repeat=99)
    earlier = {spec.trial_id: record_of(spec) for spec in (*TRIALS[:2], unplanned)}
    assert sweep.session.reuse(earlier, [HERE], resume=True) == at_once
    assert dispatch(sweep) == TRIALS[2]
    assert sweep.session.reused == 2


class PrefersAnEarlierTrial(MakesTrials):
    """A search that, asked again, wants a trial that an earlier run measured."""

    def reconsider(self, spec: TrialSpec) -> TrialSpec | None:
        return TRIALS[-1]


def test_start_does_not_repeat_an_earlier_trial(tmp_path):
    session = Sweep(tmp_path, make=PrefersAnEarlierTrial).session
    session.reuse({TRIALS[-1].trial_id: record_of(TRIALS[-1])}, [HERE], resume=True)
    dispatched = session.next_trials()
    assert dispatched == (TRIALS[0],)
    assert session.start(dispatched) == (TRIALS[1],)
    assert session.reused == 1
