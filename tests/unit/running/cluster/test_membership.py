"""Nodes that join and leave, and GPUs that turn out unfit, during a sweep."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.record import Outcome
from jobs.spec import TrialSpec
from orchestrator.running.close_reason import CloseReason
from orchestrator.running.cluster.gpu_slot import INFRASTRUCTURE_RETRIES
from orchestrator.running.cluster.membership import Membership
from orchestrator.running.cluster.messages import UNHEALTHY, Assignment, GpuProblem, UnhealthyGpu
from orchestrator.running.cluster.ray_nodes import ModelQueries
from orchestrator.running.cluster.searcher import SessionSearcher
from orchestrator.running.cluster.slot_watch import SlotWatch
from orchestrator.running.cluster.tune_callback import TuneCallback
from orchestrator.running.nodes import Cluster
from orchestrator.running.session import Session
from orchestrator.search.base import Grid
from orchestrator.search.several import for_gpu_model, per_gpu_model
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import build_tiny_spec
from tests.support.fake_ray import node_of
from tests.support.observers import Recorder
from tests.support.records import ended

PLAN = [build_tiny_spec(repeat=number) for number in range(4)]


class Queries(ModelQueries):
    """Nodes that are asked for their GPU model answer when a test says so."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.ready: dict[str, str] = {}

    def ask(self, node_id: str, gpus: int) -> None:
        self.asked.append(node_id)

    def answers(self) -> dict[str, str]:
        answers, self.ready = self.ready, {}
        return answers


class FakeTuneTrial(SimpleNamespace):
    """What is used of Tune's trial, with an actor that keeps its assignments."""

    def __init__(self, trial_id: str, config: dict[str, Any]) -> None:
        self.assignments: list[Assignment] = []
        actor = SimpleNamespace(assign=SimpleNamespace(remote=self.assignments.append))
        super().__init__(
            trial_id=trial_id,
            config=config,
            error_file=None,
            temporary_state=SimpleNamespace(ray_actor=actor),
            metric_analysis={},
            metric_n_steps={},
            run_metadata=SimpleNamespace(last_result={}),
            last_result={},
            storage=None,
        )

    @property
    def specs(self) -> tuple[TrialSpec, ...]:
        (assignment,) = self.assignments
        return assignment.specs


class Sweep:
    """A session under a fake Tune, on a node for each GPU model (model -> GPUs)."""

    def __init__(
        self,
        folder: Path,
        gpus: Mapping[str, int],
        *,
        allowed: tuple[str, ...] = (),
        budget: float | None = None,
    ) -> None:
        nodes = [node_of(model, count) for model, count in gpus.items()]
        self.now = 0.0
        self.there = [self._ray_node(node.node_id, node.gpus) for node in nodes]
        self.folder = RunFolder(folder)
        with self.folder.locked():
            pass
        cluster = Cluster(nodes=tuple(nodes)).only(allowed)
        slots = cluster.slots_by_model()
        searches = {model: Grid(for_gpu_model(PLAN, model)) for model in slots}
        self.observer = Recorder()
        self.session = Session(
            per_gpu_model(searches, slots),
            self.folder,
            [self.observer],
            time_budget_seconds=budget,
            clock=lambda: self.now,
        )
        self.queries = Queries()
        self.membership = Membership(
            self.session,
            cluster,
            nodes=lambda: self.there,
            queries=self.queries,
            clock=lambda: self.now,
        )
        self.membership.on_slots = slots.update
        self.searcher = SessionSearcher(self.session, self.membership.slots.placements)
        self.callback = TuneCallback(
            self.session, self.searcher, self.membership, SlotWatch(self.session.message), {}
        )

    @staticmethod
    def _ray_node(node_id: str, gpus: int) -> dict[str, Any]:
        resources = {"CPU": 8.0, "GPU": float(gpus)} if gpus else {"CPU": 8.0}
        return {
            "NodeID": node_id,
            "NodeManagerAddress": f"address of {node_id}",
            "Alive": True,
            "Resources": resources,
        }

    def suggest(self, name: str) -> Any:
        """One of Tune's trials, which waits for a slot."""
        config = self.searcher.suggest(name)
        assert isinstance(config, dict), config
        return FakeTuneTrial(name, config)

    def start(self, name: str) -> FakeTuneTrial:
        trial = self.suggest(name)
        self.callback.on_trial_start(0, [], trial)
        return trial

    def look(self, now: float) -> None:
        """Tune takes a step at this time."""
        self.now = now
        self.membership.on_step_begin(0, [])

    def join(self, node_id: str, gpus: int = 1) -> None:
        self.there.append(self._ray_node(node_id, gpus))

    def report(self, trial: FakeTuneTrial, problem: GpuProblem, **given: str) -> bool:
        """The trial's actor reports an unfit GPU; returns whether Tune is to stop the trial."""
        where = {"planned_model": "H200", "gpu": "GPU 0 of here", "node_id": "H200"}
        gpu = UnhealthyGpu(problem=problem, **{"reason": "Xid 79", **where, **given})
        result = {UNHEALTHY: gpu, "done": not gpu.reason}
        is_stopped = self.membership(trial.trial_id, result)
        self.callback.on_trial_result(0, [], trial, result)
        if is_stopped or not gpu.reason:
            self.callback.on_trial_complete(0, [], trial)
            self.membership.on_trial_complete(0, [], trial)
        return is_stopped


def ids(specs: Any) -> list[str]:
    return [spec.trial_id for spec in specs]


def test_trial_starts_when_its_slot_is_ready(tmp_path):
    sweep = Sweep(tmp_path, {"H200": 1})
    trial = sweep.suggest("a")
    assert sweep.observer.events == []
    assert set(trial.config) == {"bundle", "label_selector"}, "Tune keeps copies of configs"
    sweep.callback.on_trial_start(0, [], trial)
    assert sweep.observer.events == [("started", PLAN[0].trial_id)]
    (assignment,) = trial.assignments
    assert (assignment.gpu_model, assignment.may_share) == ("H200", True)
    assert assignment.seconds_left == float("inf")
    (spec,) = assignment.specs
    assert (spec.trial_id, spec.needs.gpus, spec.needs.cpus) == (PLAN[0].trial_id, 1, 8)


def test_trial_gets_what_is_left_of_the_budget_when_it_starts(tmp_path):
    sweep = Sweep(tmp_path, {"H200": 1}, budget=60.0)
    trial, late = sweep.suggest("a"), sweep.suggest("b")
    sweep.now = 20.0
    sweep.callback.on_trial_start(0, [], trial)
    assert trial.assignments[0].seconds_left == 40.0
    sweep.now = 60.0
    sweep.callback.on_trial_start(0, [], late)
    assert late.specs == ()
    assert sweep.searcher.suggest("c") == "FINISHED"


def test_trial_given_back_is_the_next_to_begin(tmp_path):
    sweep = Sweep(tmp_path, {"H200": 2})
    first, _ = sweep.start("a"), sweep.start("b")
    assert not sweep.report(first, GpuProblem.DEAD)
    assert ids(sweep.start("c").specs) == ids(PLAN[:1])
    sentence = "GPU 0 of here fails at every CUDA call and was set aside: Xid 79"
    assert list(sweep.membership.unhealthy.notes) == [sentence]
    sweep.callback.on_trial_error(0, [], first)  # the actor that keeps the GPU dies
    assert ids(sweep.start("d").specs) == ids(PLAN[2:3])


def test_sweep_waits_for_trials_and_not_for_unfit_gpus(tmp_path):
    sweep = Sweep(tmp_path, {"H200": 2})
    trials = [sweep.start(str(number)) for number in range(4)]
    assert sweep.searcher.suggest("more") is None, "a trial may still be given back"
    for spec in PLAN[1:]:
        sweep.session.ended(ended(spec))
    assert not sweep.report(trials[0], GpuProblem.LOST)
    assert ids(sweep.start("again").specs) == ids(PLAN[:1])
    sweep.session.ended(ended(PLAN[0]))
    assert sweep.session.finished
    assert sweep.report(trials[0], GpuProblem.LOST), "the lost GPU keeps the sweep from ending"


def test_shared_gpus_are_avoided_until_there_is_no_other(tmp_path):
    sweep = Sweep(tmp_path, {"H200": 2})
    assert not sweep.membership.may_share("")
    first, second = sweep.start("a"), sweep.start("b")
    assert not sweep.report(first, GpuProblem.SHARED)
    assert not sweep.membership.may_share("")
    assert sweep.report(second, GpuProblem.SHARED)
    assert sweep.report(first, GpuProblem.SHARED)
    assert sweep.membership.may_share("")
    assert "every GPU that is left is shared" in list(sweep.membership.unhealthy.notes)[-1]


def test_sweep_ends_after_a_while_without_a_fit_gpu(tmp_path):
    sweep = Sweep(tmp_path, {"H200": 1})
    trial = sweep.start("a")
    sweep.report(trial, GpuProblem.LOST)
    sweep.look(10.0)
    assert not sweep.membership.stop_all()
    assert not sweep.report(trial, GpuProblem.LOST, reason="")
    assert sweep.observer.messages[-1] == "GPU 0 of here is fit again"
    sweep.look(700.0)
    assert not sweep.membership.stop_all()
    again = sweep.start("b")
    sweep.report(again, GpuProblem.LOST)
    sweep.look(710.0)
    sweep.look(1300.0)
    assert not sweep.membership.stop_all()
    sweep.look(1311.0)
    assert sweep.membership.stop_all()
    assert sweep.session.close_reason is CloseReason.NO_NODES
    assert "waiting for one to join, at most 10 minutes" in sweep.observer.messages[-1]


def test_node_that_joins_one_model_is_used_at_once(tmp_path):
    sweep = Sweep(tmp_path, {"H200": 1})
    sweep.look(1.0)
    sweep.join("another")
    sweep.look(10.0)
    assert sweep.observer.messages == ["a node joined: address of another"]
    assert (sweep.membership.slots.total, sweep.membership.trials_at_once) == (2, 3)
    assert sweep.queries.asked == [], "its actor would find out"
    sweep.there = sweep.there[1:]
    sweep.look(20.0)
    assert sweep.observer.messages[-1] == "lost 1 of 2 nodes"
    assert sweep.membership.slots.total == 1


NEW_MODEL = (
    "a new GPU model joined (A100): run the same command with --resume to measure on it, too"
)


def test_new_model_found_by_an_actor_is_announced_once(tmp_path):
    sweep = Sweep(tmp_path, {"H200": 1})
    sweep.join("new")
    sweep.look(10.0)
    other = {"node_id": "new", "found_model": "A100"}
    for name in ("a", "b"):
        assert not sweep.report(sweep.start(name), GpuProblem.OTHER_MODEL, **other)
    assert sweep.observer.messages == ["a node joined: address of new", NEW_MODEL]
    assert sweep.membership.unhealthy.notes == {}
    assert sweep.session.close_reason is None, "the sweep goes on"
    sweep.report(sweep.start("c"), GpuProblem.OTHER_MODEL, found_model="A100")
    (note,) = sweep.membership.unhealthy.notes
    assert "is of a model that no trial is planned for" in note, "it was there from the start"


def test_known_model_that_joins_unlike_gpus_is_used(tmp_path):
    sweep = Sweep(tmp_path, {"A100": 1, "H200": 1})
    sweep.look(1.0)
    sweep.join("second H200")
    sweep.look(10.0)
    assert sweep.queries.asked == ["second H200"]
    assert sweep.membership.slots.by_model() == {"A100": 1, "H200": 1}
    sweep.queries.ready = {"second H200": "H200"}
    sweep.look(20.0)
    assert sweep.membership.slots.by_model() == {"A100": 1, "H200": 2}
    assert sweep.observer.messages == ["a node joined: address of second H200"]
    selectors = [sweep.start(str(number)).config["label_selector"] for number in range(5)]
    assert selectors.count("in(H200,second H200)") == 3, "two slots and one that waits"


@pytest.mark.parametrize("gpus", [{"B200": 1, "H200": 1}, {"a processor": 0}])
def test_new_model_that_joins_unlike_gpus_is_announced_once(gpus, tmp_path):
    sweep = Sweep(tmp_path, gpus)
    sweep.look(1.0)
    for node_id in ("third", "fourth"):
        sweep.join(node_id)
    sweep.look(10.0)
    sweep.queries.ready = {"third": "A100", "fourth": "A100"}
    sweep.look(20.0)
    assert sweep.observer.messages.count(NEW_MODEL) == 1
    assert "A100" not in sweep.membership.slots.placements
    sweep.look(30.0)
    assert sweep.queries.asked == ["third", "fourth"]


def test_model_that_the_config_does_not_allow_is_not_announced(tmp_path):
    sweep = Sweep(tmp_path, {"A100": 1, "H200": 1}, allowed=("h200",))
    sweep.look(1.0)
    sweep.join("third")
    sweep.join("second H200")
    sweep.look(10.0)
    sweep.queries.ready = {"third": "A100", "second H200": "H200"}
    sweep.look(20.0)
    assert sweep.observer.messages == ["a node joined: address of second H200"]
    assert sweep.queries.asked == ["third", "second H200"], "not those of the first look"


def test_trial_that_loses_its_actor_is_repeated_twice_at_most(tmp_path):
    sweep = Sweep(tmp_path, {"H200": 1})
    errors = tmp_path / "error.txt"
    errors.write_text("Traceback\nRayActorError: The node died\n\n")
    for number in range(INFRASTRUCTURE_RETRIES):
        trial = sweep.start(str(number))
        trial.error_file = str(errors)
        sweep.callback.on_trial_error(0, [], trial)
        message = f"trial {PLAN[0].trial_id} is repeated: RayActorError: The node died"
        assert sweep.observer.messages == [message] * (number + 1)
    sweep.callback.on_trial_error(0, [], sweep.start("last"))
    (record,) = sweep.folder.records().values()
    assert (record.trial_id, record.outcome) == (PLAN[0].trial_id, Outcome.CRASHED)
    assert ids(sweep.start("next").specs) == ids(PLAN[1:2])


def test_tie_break_that_loses_its_actor_goes_on_where_it_was(tmp_path):
    sweep = Sweep(tmp_path, {"H200": 1})
    trial = sweep.suggest("a")
    further = (*sweep.session.next_trials(), *sweep.session.next_trials())
    sweep.searcher._specs["a"] += further
    sweep.callback.on_trial_start(0, [], trial)
    sweep.session.ended(ended(PLAN[0]))
    sweep.callback.on_trial_error(0, [], trial)
    assert ids(sweep.start("b").specs) == ids(PLAN[1:3])


def test_tune_writes_nothing_of_ours_to_disk(tmp_path):
    sweep = Sweep(tmp_path, {"H200": 1})
    for written in (sweep.membership, sweep.callback, sweep.searcher):
        assert written.__getstate__() == {}


def test_lost_folder_ends_the_sweep_at_the_next_look(tmp_path):
    sweep = Sweep(tmp_path, {"H200": 1})
    with sweep.folder.locked():
        sweep.look(1.0)
        assert not sweep.membership.stop_all()
        (tmp_path / "lock").unlink()
        sweep.look(3.0)
        assert sweep.membership.stop_all()
