"""GPUs that fall ill during a sweep: their trials are given back and begun elsewhere, the GPU is kept from others."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.node import cuda_probe, nvml
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec, to_json
from orchestrator import sweep
from orchestrator.reporting import publish as publishing
from orchestrator.reporting import terminal
from orchestrator.running import gpu_screening
from orchestrator.running.cluster import membership as rosters
from orchestrator.running.cluster import slot_actor
from orchestrator.running.cluster.membership import Roster
from orchestrator.running.cluster.tune_callback import Bookkeeper
from orchestrator.running.gpu_screening import Fitness
from orchestrator.running.nodes import Cluster, Node
from orchestrator.running.progress import Progress
from orchestrator.running.session import Session
from orchestrator.search.grid import Grid
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import build_tiny_spec

PLAN = [build_tiny_spec(repeat=number) for number in range(4)]


class Card:
    """An invented GPU: what NVML, the canary and the slot find."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lost = self.shared = self.dead = ""
        self.outcome, self.reason = Outcome.OK, ""
        self.visits, self.seconds, self.children = 0, 2.0, 0
        self.ran: list[TrialSpec] = []
        monkeypatch.setattr(nvml, "lost", lambda: self.lost)
        monkeypatch.setattr(nvml, "shared", lambda waiting: self.shared)
        monkeypatch.setattr(cuda_probe, "dead", lambda: self.dead)
        monkeypatch.setattr(slot_actor, "Slot", lambda cpus: self)
        monkeypatch.setattr(slot_actor, "_RELEASE_SECONDS", 0.0)
        monkeypatch.setattr(slot_actor, "_WATCH_SECONDS", 0.0)
        monkeypatch.setattr(slot_actor.ray, "get_gpu_ids", lambda: [0])

    def run(self, spec: TrialSpec, timeout_seconds: float) -> TrialRecord:
        self.ran.append(spec)
        was_visited, self.visits = self.visits > 0, max(0, self.visits - 1)
        said = {"warnings": ["shared: 1 other processes were on the GPU"]} if was_visited else {}
        begun = float(len(self.ran))
        return TrialRecord(
            spec=spec,
            outcome=self.outcome,
            reason=self.reason,
            measurements=said,
            started_at=begun,
            slot_seconds=self.seconds,
        )

    def close(self) -> None:
        pass


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    """It is well."""
    return Card(monkeypatch)


def config(*specs: TrialSpec, may_share: bool = False) -> dict[str, Any]:
    """What an actor is told."""
    told = [json.dumps(to_json(spec)) for spec in specs]
    return {
        "specs": told,
        "gpu_model": "",
        "expected_model": "",
        "seconds_left": 60.0,
        "may_share": may_share,
    }


def test_what_a_gpu_is_blamed_for_is_no_row_and_it_is_watched_until_it_is_well(card: Card) -> None:
    for ill, well, outcome, reason in (
        ("lost", True, Outcome.CRASHED, ""),
        ("shared", True, Outcome.OK, ""),
        ("dead", False, Outcome.FAILED, "AcceleratorError: CUDA error: unknown error"),
        ("dead", False, Outcome.TIMED_OUT, ""),
    ):
        card.outcome, card.reason = outcome, reason
        actor = slot_actor.SlotTrainable(config(PLAN[0]))
        setattr(card, ill, "so it is")
        said = actor.train()
        assert (said["unwell"], said["reason"], said["done"], "record" in said) == (
            ill,
            "so it is",
            False,
            False,
        )
        assert not actor.train()["done"]
        setattr(card, ill, "")
        assert actor.train()["done"] is well


def test_what_is_the_trials_own_is_its_row(card: Card) -> None:
    for outcome, reason, dead in (
        (Outcome.OUT_OF_MEMORY, "CUDA out of memory", "nobody asks"),
        (Outcome.FAILED, "ValueError: no", "nobody asks"),
        (Outcome.FAILED, "CUDA error: device-side assert triggered", ""),
        (Outcome.CRASHED, "killed by SIGSEGV", ""),
    ):
        card.outcome, card.reason, card.dead = outcome, reason, dead
        assert (
            json.loads(slot_actor.SlotTrainable(config(PLAN[0])).train()["record"])["outcome"]
            == outcome
        )


def test_a_shared_gpu_is_measured_on_where_it_may_be(card: Card) -> None:
    card.shared = "1.0 GiB are in use on it"
    assert "record" in slot_actor.SlotTrainable(config(PLAN[0], may_share=True)).train()


@pytest.mark.parametrize("may_share", [False, True])
@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.OUT_OF_MEMORY, Outcome.FAILED])
def test_what_somebody_elses_visit_disturbed_is_measured_again_once(
    card: Card, outcome: Outcome, may_share: bool
) -> None:
    card.outcome = outcome
    for visits, seconds, runs, is_doubted in (
        (1, 2.0, 2, False),
        (2, 2.0, 2, True),
        (1, 90.0, 1, True),  # longer than the sweep will last
    ):
        card.visits, card.seconds = visits, seconds
        card.ran.clear()
        record = json.loads(
            slot_actor.SlotTrainable(config(PLAN[0], may_share=may_share)).train()["record"]
        )
        assert (len(card.ran), "warnings" in record["measurements"]) == (runs, is_doubted)
        assert (record["outcome"], record["started_at"], record["slot_seconds"]) == (
            outcome,
            1.0,
            runs * seconds,
        )


def test_what_measuring_again_does_not_help_is_not_done_again(card: Card) -> None:
    """What is taken for a visitor may be a library; two slots' worth of time for every trial would be its price."""
    actor = slot_actor.SlotTrainable(config(*PLAN, may_share=True))
    runs = []
    for visits in (2, 1, 0, 1):
        card.visits = visits
        assert "record" in actor.train()
        runs.append(len(card.ran))
    assert runs == [2, 3, 4, 6]


def test_a_visitor_that_stays_has_the_gpu_to_itself_or_company(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "shared", lambda waiting: "so it is" if card.ran else "")
    for may_share, unwell in ((False, "shared"), (True, None)):
        card.visits = 1
        card.ran.clear()
        said = slot_actor.SlotTrainable(config(PLAN[0], may_share=may_share)).train()
        assert (said.get("unwell"), "record" in said, len(card.ran)) == (unwell, may_share, 1)


def test_who_leaves_soon_is_waited_for_once(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU without a better one. The visitor comes during the first trial and stays through the second."""
    now = [0.0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + seconds)
    )
    monkeypatch.setattr(slot_actor, "time", clock)
    monkeypatch.setattr(slot_actor, "_RELEASE_SECONDS", 10.0)
    monkeypatch.setattr(nvml, "shared", lambda waiting: "so it is" if card.ran else "")
    card.visits = 2
    actor = slot_actor.SlotTrainable(config(*PLAN[:2], may_share=True))
    for runs in (1, 2):
        assert "record" in actor.train()
        assert (len(card.ran), now) == (runs, [pytest.approx(10.0, abs=0.1)])


def test_a_gpu_of_another_model_gives_its_trial_back(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_actor.environment, "describe", lambda: {"gpu_model": "A100"})
    actor = slot_actor.SlotTrainable({**config(PLAN[0]), "expected_model": "H200"})
    assert (actor.train()["reason"], card.ran) == ("it is a A100", [])
    assert not actor.train()["done"]
    assert (
        "record" in slot_actor.SlotTrainable({**config(PLAN[0]), "expected_model": "A100"}).train()
    )


class Sweep:
    """A session with a roster and a bookkeeper, on GPUs of these models (model -> how many), one node each."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, gpus: Mapping[str, int]
    ) -> None:
        nodes = [
            Node(
                node_id=m, address=m, gpus=count, cpus=1, host_bytes=1, environment={"gpu_model": m}
            )
            for m, count in gpus.items()
        ]
        self.cluster, self.output, self.now = Cluster(nodes=tuple(nodes)), io.StringIO(), 0.0
        self.folder = RunFolder(folder)
        with self.folder.locked():
            pass
        progress = Progress(len(PLAN), 1, (), stream=self.output)
        self.session = Session(
            Grid(PLAN), self.folder, progress, time_budget_seconds=None, may_begin_anew=True
        )
        self.roster = Roster(self.session, self.cluster)
        self.bookkeeper = Bookkeeper(self.session, self.cluster)
        self.there = [
            {"NodeID": n.node_id, "Alive": True, "Resources": {"GPU": n.gpus}} for n in nodes
        ]
        monkeypatch.setattr(rosters.ray, "nodes", lambda: self.there)
        monkeypatch.setattr(rosters.time, "monotonic", lambda: self.now)

    def start(self, name: str) -> Any:
        """One of Tune's trials, with what the session gives out next."""
        return SimpleNamespace(
            trial_id=name, config=config(*self.session.next_trials()), error_file=None
        )

    def later(self, now: float) -> None:
        """The roster looks again."""
        self.now = now
        self.roster.on_step_begin(0, [])

    def join(self, now: float) -> None:
        """A node with a GPU does."""
        node = {
            "NodeID": str(now),
            "NodeManagerAddress": "",
            "Alive": True,
            "Resources": {"GPU": 1.0},
        }
        self.there.append(node)
        self.later(now)

    def hear(self, trial: Any, unwell: str, *, done: bool = False) -> bool:
        """Its actor's word that the GPU is unwell; whether Tune is to stop it."""
        result = {
            "unwell": unwell,
            "gpu": "GPU 0 of here",
            "reason": "so",
            "gpu_model": "",
            "done": done,
        }
        stopped = self.roster(trial.trial_id, result)
        self.bookkeeper.on_trial_result(0, [], trial, result)
        if stopped or done:
            self.roster.on_trial_complete(0, [], trial)
        return stopped


def test_a_trial_given_back_is_the_next_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept = Sweep(tmp_path, monkeypatch, {"H200": 2})
    first, _ = swept.start("a"), swept.start("b")
    assert not swept.hear(first, "dead")
    assert first.config["specs"] == []
    assert swept.session.next_trials() == (PLAN[0],)
    assert swept.roster.notes == ("GPU 0 of here fails at every CUDA call and was set aside: so",)
    swept.bookkeeper.on_trial_error(0, [], first)  # the actor that keeps the GPU dies
    assert swept.session.next_trials() == (PLAN[2],)


def test_a_sweep_waits_for_trials_that_may_be_given_back_and_not_for_unwell_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept = Sweep(tmp_path, monkeypatch, {"H200": 2})
    tune_trials = [swept.start(str(number)) for number in range(4)]
    assert swept.session.next_trials() == ()
    assert not swept.session.finished
    for spec in PLAN[1:]:
        swept.session.ended(TrialRecord(spec=spec, outcome=Outcome.UNSUPPORTED))
    assert not swept.hear(tune_trials[0], "lost")
    assert swept.session.next_trials() == (PLAN[0],)
    swept.session.ended(TrialRecord(spec=PLAN[0], outcome=Outcome.UNSUPPORTED))
    assert swept.session.finished
    assert swept.hear(tune_trials[0], "lost"), "the lost GPU keeps the sweep from ending"


def test_a_cluster_has_grown_when_a_node_with_a_gpu_has_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept = Sweep(tmp_path, monkeypatch, {"H200": 1})
    for swept.now, resources, grown in ((10.0, {"CPU": 1.0}, False), (20.0, {"GPU": 1.0}, True)):
        swept.roster.on_step_begin(0, [])
        swept.there.append(
            {
                "NodeID": str(swept.now),
                "NodeManagerAddress": "",
                "Alive": True,
                "Resources": resources,
            }
        )
        swept.now += 5
        swept.roster.on_step_begin(0, [])
        assert swept.roster.has_grown is grown


def test_a_sweep_begins_anew_with_a_model_that_has_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept = Sweep(tmp_path, monkeypatch, {"H200": 1})
    trial = swept.start("a")
    swept.hear(trial, "unlike")
    assert not swept.session.begins_anew, "no node has joined: one has GPUs of two models"
    swept.roster.on_step_begin(0, [])
    swept.join(10.0)
    assert not swept.session.begins_anew, "it may be of the same model"
    assert swept.hear(trial, "unlike", done=False), "its GPU is given back"
    assert swept.session.begins_anew
    assert swept.session.next_trials() == ()


def test_unlike_gpus_go_on_with_all_that_have_joined_once_no_other_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept = Sweep(tmp_path, monkeypatch, {"H200": 1, "A100": 1})
    swept.roster.on_step_begin(0, [])
    for joined_at in (10.0, 35.0):
        swept.join(joined_at)
    swept.later(60.0)
    assert not swept.session.begins_anew
    swept.later(66.0)
    assert swept.session.begins_anew


def test_shared_gpus_are_left_until_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept = Sweep(tmp_path, monkeypatch, {"H200": 2})
    assert not swept.roster.may_share("")
    one, other = swept.start("a"), swept.start("b")
    assert not swept.hear(one, "shared")
    assert not swept.roster.may_share("")
    assert swept.hear(other, "shared")
    assert swept.hear(one, "shared")
    assert swept.roster.may_share("")
    assert "no GPU is left that nobody else uses" in swept.output.getvalue()
    assert Sweep(tmp_path / "single", monkeypatch, {"H200": 1}).roster.may_share("")


def test_when_no_gpu_is_well_the_sweep_ends_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept = Sweep(tmp_path, monkeypatch, {"H200": 1})
    trial = swept.start("a")
    swept.hear(trial, "lost")
    for swept.now, recovered, over in (
        (10.0, False, False),
        (700.0, True, False),
        (710.0, False, False),
        (1400.0, False, True),
    ):
        if recovered:
            swept.hear(trial, "lost", done=True)
        swept.roster.on_step_begin(0, [])
        if recovered:
            swept.hear(trial, "lost")
        assert swept.roster.stop_all() is over, swept.now


def test_a_comparison_that_loses_its_actor_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept = Sweep(tmp_path, monkeypatch, {"H200": 1})
    specs = [spec for _ in range(3) for spec in swept.session.next_trials()]
    swept.session.ended(TrialRecord(spec=PLAN[0], outcome=Outcome.UNSUPPORTED))
    for _ in range(slot_actor.INFRASTRUCTURE_RETRIES):
        swept.bookkeeper.on_trial_error(0, [], SimpleNamespace(config=config(*specs)))
        assert swept.session.next_trials() == (PLAN[1], PLAN[2])
    swept.bookkeeper.on_trial_error(0, [], SimpleNamespace(config=config(*specs)))
    assert swept.folder.records()[PLAN[1].trial_id].outcome is Outcome.CRASHED
    assert swept.session.next_trials() == (PLAN[2],)


def test_a_sweep_goes_on_until_every_model_that_joined_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = ({"H200": 1}, {"H200": 1, "A100": 1})
    clusters = iter([Sweep(tmp_path, monkeypatch, gpus).cluster for gpus in (one, two, two, two)])
    begin_anew = iter([True, True, False])
    measured: list[tuple[str, bool, bool]] = []

    def measure(
        config: object, searching: object, options: Any, folder: object, fit: Fitness
    ) -> Any:
        measured.append((fit.cluster.hardware, options.resume, options.fresh))
        anew = next(begin_anew)
        return SimpleNamespace(begins_anew=anew, cut_short=anew, interrupted=False), True

    monkeypatch.setattr(
        gpu_screening,
        "reached",
        lambda address, resources: nullcontext(Fitness(cluster=next(clusters))),
    )
    monkeypatch.setattr(sweep, "_measure", measure)
    monkeypatch.setattr(publishing, "publish", lambda folder: None)
    monkeypatch.setattr(terminal, "print_summary", lambda summary, as_json: None)
    options = SimpleNamespace(address=None, time_budget=None, resume=False, fresh=True, json=False)
    wanted: Any = SimpleNamespace(resources=None, search=SimpleNamespace(kind="grid"))
    assert sweep._run(wanted, Grid, options, RunFolder(tmp_path)) == 0
    assert measured == [
        ("H200", False, True),
        ("A100, H200", True, False),
        ("A100, H200", True, False),
    ]
