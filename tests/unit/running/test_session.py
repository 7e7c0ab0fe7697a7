"""A sweep without Ray: budget, reuse, interruption, and one row for every planned trial whatever comes."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.running.progress import Progress
from orchestrator.running.session import Session
from orchestrator.search.base import Search
from orchestrator.search.batch_size.search import BatchSize
from orchestrator.search.grid import Grid
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import build_tiny_spec
from tests.support.clock import Clock
from tests.support.devices import Device, make_trial

HERE = {"gpu_model": "", "torch": "2"}
ELSEWHERE = {"gpu_model": "", "torch": "3"}
TRIALS = [build_tiny_spec(repeat=number) for number in range(6)]


class Sweep:
    """A session on a folder of its own, with what it printed and its clock."""

    def __init__(
        self,
        folder: Path,
        trials: list[TrialSpec] = TRIALS,
        budget: float | None = None,
        make: Callable[[Iterable[TrialSpec]], Search] = Grid,
    ) -> None:
        self.clock, self.output = Clock(), io.StringIO()
        self.folder = RunFolder(folder)
        with self.folder.locked():
            pass
        self.search = make(trials)
        progress = Progress(len(trials), 1, (), stream=self.output, clock=self.clock)
        self.session = Session(
            self.search, self.folder, progress, time_budget_seconds=budget, clock=self.clock
        )

    def outcomes(self) -> dict[str, tuple[Outcome, str]]:
        """Trial id -> outcome and rule, as the folder has them."""
        return {
            name: (record.outcome, record.rule) for name, record in self.folder.records().items()
        }


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """Six trials, no budget."""
    return Sweep(tmp_path)


def ended(
    spec: TrialSpec,
    outcome: Outcome = Outcome.OK,
    *,
    seconds: float = 1.0,
    environment: object = HERE,
) -> TrialRecord:
    """A trial's record."""
    assert isinstance(environment, dict)
    figures = (
        {"samples_per_second": 1.0, "peak_allocated_bytes": 1} if outcome is Outcome.OK else {}
    )
    return TrialRecord(
        spec=spec,
        outcome=outcome,
        measurements=figures,
        slot_seconds=seconds,
        environment=environment,
        started_at=1.0,
    )


def asked(sweep: Sweep) -> Iterator[TrialSpec]:
    """Trials until there are none."""
    while (spec := sweep.session.next_trial()) is not None:
        yield spec


def test_every_trial_is_run_once_in_order(sweep: Sweep) -> None:
    for spec in asked(sweep):
        sweep.session.ended(ended(spec))
    sweep.session.account()
    assert sweep.session.finished
    assert sweep.outcomes() == {trial.trial_id: (Outcome.OK, "") for trial in TRIALS}


def test_a_spent_budget_starts_nothing_more(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, budget=10.0)
    first = sweep.session.next_trial()
    assert first is not None
    assert sweep.session.seconds_left() == 10.0
    ahead = sweep.session.next_trials()
    sweep.clock.now += 10.0
    assert sweep.session.begins(ahead) == ()
    assert sweep.session.next_trial() is None
    assert sweep.session.finished
    sweep.session.ended(ended(first))
    sweep.session.account()
    expected = {trial.trial_id: (Outcome.SKIPPED, "time_budget") for trial in TRIALS}
    assert sweep.outcomes() == {**expected, first.trial_id: (Outcome.OK, "")}


def test_a_trial_that_the_budget_cut_is_skipped_not_timed_out(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, budget=10.0)
    first, second = sweep.session.next_trial(), sweep.session.next_trial()
    assert first is not None
    assert second is not None
    sweep.session.ended(replace(ended(first, Outcome.TIMED_OUT, seconds=10.0), phase="steps"))
    sweep.session.ended(ended(second, Outcome.TIMED_OUT, seconds=second.measure.timeout_seconds))
    found = sweep.folder.records()
    assert (found[first.trial_id].outcome, found[first.trial_id].rule) == (
        Outcome.SKIPPED,
        "time_budget",
    )
    assert found[first.trial_id].reason.endswith("while the trial was in phase steps")
    assert found[second.trial_id].outcome is Outcome.TIMED_OUT


def test_an_interruption_lets_running_trials_finish(sweep: Sweep) -> None:
    first, ahead = sweep.session.next_trial(), sweep.session.next_trial()
    assert first is not None
    assert ahead is not None
    assert sweep.session.begins([first]) == (first,)
    sweep.session.interrupt()
    assert sweep.session.interrupted
    assert sweep.session.begins([ahead]) == (), "it was asked for, but nothing new begins"
    assert sweep.session.next_trial() is None
    assert "finishing 1 running trial" in sweep.output.getvalue()
    sweep.session.ended(ended(first))
    sweep.session.account()
    expected = {trial.trial_id: (Outcome.SKIPPED, "interrupted") for trial in TRIALS}
    assert sweep.outcomes() == {**expected, first.trial_id: (Outcome.OK, "")}


def test_the_first_reason_to_stop_is_the_one_given(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, budget=10.0)
    sweep.clock.now += 11.0
    assert sweep.session.next_trial() is None
    sweep.session.interrupt()
    sweep.session.account()
    assert {rule for _, rule in sweep.outcomes().values()} == {"time_budget"}
    assert not sweep.session.interrupted


def test_trials_given_up_have_their_row(sweep: Sweep) -> None:
    assert sweep.session.next_trial() is not None
    sweep.session.interrupt()
    sweep.session.account()
    assert len(sweep.outcomes()) == len(TRIALS)


FINAL = [outcome for outcome in Outcome if outcome.is_final]
REPEATED_BY_A_SECOND_RUN = {
    Outcome.CRASHED,
    Outcome.FAILED,
    Outcome.TIMED_OUT,
    Outcome.HOST_OUT_OF_MEMORY,
}


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("resume", [True, False])
def test_what_an_earlier_run_leaves_to_do(outcome: Outcome, resume: bool, sweep: Sweep) -> None:
    earlier = {TRIALS[0].trial_id: ended(TRIALS[0], outcome)}
    kept = outcome in FINAL and (resume or outcome not in REPEATED_BY_A_SECOND_RUN)
    assert sweep.session.reuse(earlier, [HERE], resume=resume) == kept
    assert (TRIALS[0] not in list(asked(sweep))) == kept


@pytest.mark.parametrize("resume", [True, False])
def test_rows_of_another_environment_are_measured_again(resume: bool, sweep: Sweep) -> None:
    earlier = {TRIALS[0].trial_id: ended(TRIALS[0], environment=ELSEWHERE)}
    assert sweep.session.reuse(earlier, [HERE], resume=resume) == 0
    assert TRIALS[0] in list(asked(sweep))


def test_rows_of_any_node_of_the_cluster_are_kept(sweep: Sweep) -> None:
    earlier = {
        TRIALS[0].trial_id: ended(TRIALS[0], environment=ELSEWHERE),
        TRIALS[1].trial_id: ended(TRIALS[1], environment=HERE),
    }
    assert sweep.session.reuse(earlier, iter([HERE, ELSEWHERE]), resume=True) == 2


def test_what_is_known_of_a_trial_outlives_a_turn_that_never_came(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, budget=5.0)
    failed = ended(TRIALS[0], Outcome.FAILED)
    sweep.folder.write(failed)
    assert sweep.session.reuse({failed.trial_id: failed}, [HERE], resume=False) == 0
    sweep.clock.now += 10.0
    assert sweep.session.next_trial() is None
    sweep.session.account()
    outcomes = sweep.outcomes()
    assert outcomes.pop(failed.trial_id) == (Outcome.FAILED, "")
    assert set(outcomes.values()) == {(Outcome.SKIPPED, "time_budget")}


def test_what_begins_anew_leaves_the_rest_to_the_next_unless_it_is_ended(tmp_path: Path) -> None:
    for interrupted in (False, True):
        sweep = Sweep(tmp_path / str(interrupted))
        session = Session(
            sweep.search,
            sweep.folder,
            Progress(6, 1, (), stream=sweep.output),
            time_budget_seconds=None,
            may_begin_anew=True,
        )
        earlier = {
            spec.trial_id: sweep.folder.write(ended(spec, Outcome.FAILED)) for spec in TRIALS[:2]
        }
        session.reuse(earlier, [HERE], resume=False)
        assert session.next_trial() == TRIALS[0]
        session.begin_anew()
        assert session.next_trial() is None
        session.ended(ended(TRIALS[0]))
        if interrupted:
            session.interrupt()
        session.account()
        assert session.begins_anew is not interrupted
        assert len(sweep.outcomes()) == (6 if interrupted else 1)


class Fickle(Grid):
    """A search that wants its last trial first, and its first not at all."""

    def reconsider(self, spec: TrialSpec) -> TrialSpec | None:
        if spec == TRIALS[0]:
            return self._waiting.pop(TRIALS[-1].trial_id, None)
        return spec


def test_what_begins_is_what_the_search_wants_by_then(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, make=Fickle)
    given_ahead = sweep.session.next_trials()
    assert (given_ahead, sweep.session.begins(given_ahead)) == ((TRIALS[0],), (TRIALS[-1],))
    assert sweep.session.running == {TRIALS[-1].trial_id}
    assert sweep.session.begins(given_ahead) == ()


def test_what_a_lost_slot_had_begun_is_begun_again(tmp_path: Path) -> None:
    class Ends(Grid):
        def reconsider(self, spec: TrialSpec) -> TrialSpec | None:
            return self._waiting.pop(TRIALS[-1].trial_id, None)

    session = Sweep(tmp_path, make=Ends).session
    begun = session.begins(session.next_trials())
    session.returned(begun)
    assert session.begins(session.next_trials()) == begun == (TRIALS[-1],)
    assert session.running == {TRIALS[-1].trial_id}


def test_rows_that_are_not_planned_are_not_counted(sweep: Sweep) -> None:
    stranger = build_tiny_spec(repeat=99)
    assert sweep.session.reuse({stranger.trial_id: ended(stranger)}, [HERE], resume=True) == 0
    assert len(list(asked(sweep))) == len(TRIALS)


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    actions=st.lists(st.sampled_from(["ask", "end", "fail", "pass time", "interrupt"]), max_size=30)
)
def test_whatever_happens_every_trial_has_one_row(
    actions: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    sweep = Sweep(tmp_path_factory.mktemp("run"), budget=5.0)
    running: list[TrialSpec] = []
    finished: list[str] = []
    for action in actions:
        if action == "ask" and (spec := sweep.session.next_trial()) is not None:
            running.append(spec)
        elif action in ("end", "fail") and running:
            spec = running.pop(0)
            finished.append(spec.trial_id)
            sweep.session.ended(ended(spec, Outcome.OK if action == "end" else Outcome.FAILED))
        elif action == "pass time":
            sweep.clock.now += 1.0
        elif action == "interrupt":
            sweep.session.interrupt()
    sweep.session.account()
    outcomes = sweep.outcomes()
    assert set(outcomes) == {trial.trial_id for trial in TRIALS}
    assert {name for name, (outcome, _) in outcomes.items() if outcome.is_final} == set(finished)


def test_a_search_that_makes_its_trials_meets_its_earlier_records(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    search, device = BatchSize(make_trial), Device()
    session = Session(
        search, sweep.folder, Progress(None, 1, (), stream=sweep.output), time_budget_seconds=None
    )
    first = session.next_trial()
    assert first is not None
    session.ended(device.run(first))
    again = BatchSize(make_trial)
    resumed = Session(
        again, sweep.folder, Progress(None, 1, (), stream=sweep.output), time_budget_seconds=None
    )
    assert resumed.reuse(sweep.folder.records(), [device.environment()], resume=True) == 0
    second = resumed.next_trial()
    assert second is not None
    assert second.trial_id != first.trial_id
    assert resumed.reused == 1
