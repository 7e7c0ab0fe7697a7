"""GPUs that fall ill during a sweep: their trials are given back and begun elsewhere, the GPU is kept from others."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs import canary, nvml
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec, to_json
from orchestrator.running.cluster import roster as rosters
from orchestrator.running.cluster import slot_actor
from orchestrator.running.cluster.bookkeeper import Bookkeeper
from orchestrator.running.cluster.roster import Roster
from orchestrator.running.nodes import Cluster, Node
from orchestrator.running.progress import Progress
from orchestrator.running.session import Session
from orchestrator.running.store import RunFolder
from orchestrator.search.grid import Grid
from tests.conftest import build_tiny_spec

PLAN = [build_tiny_spec(repeat=number) for number in range(4)]


class Card:
    """An invented GPU: what NVML, the canary and the slot find."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lost = self.shared = self.dead = ""
        self.outcome, self.reason = Outcome.OK, ""
        self.ran: list[TrialSpec] = []
        monkeypatch.setattr(nvml, "lost", lambda: self.lost)
        monkeypatch.setattr(nvml, "shared", lambda: self.shared)
        monkeypatch.setattr(canary, "dead", lambda: self.dead)
        monkeypatch.setattr(slot_actor, "Slot", lambda cpus: self)
        monkeypatch.setattr(slot_actor, "_RELEASE_SECONDS", 0.0)
        monkeypatch.setattr(slot_actor, "_WATCH_SECONDS", 0.0)
        monkeypatch.setattr(slot_actor.ray, "get_gpu_ids", lambda: [0])

    def run(self, spec: TrialSpec, deadline_seconds: float) -> TrialRecord:
        self.ran.append(spec)
        return TrialRecord(spec=spec, outcome=self.outcome, reason=self.reason)

    def close(self) -> None:
        pass


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    """It is well."""
    return Card(monkeypatch)


def config(*specs: TrialSpec, may_share: bool = False) -> dict[str, Any]:
    """What an actor is told."""
    told = [json.dumps(to_json(spec)) for spec in specs]
    return {"specs": told, "gpu_model": "", "seconds_left": 60.0, "may_share": may_share}


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
        assert (said["unwell"], said["reason"], said["done"], "record" in said) == (ill, "so it is", False, False)
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
        assert json.loads(slot_actor.SlotTrainable(config(PLAN[0])).train()["record"])["outcome"] == outcome


def test_a_shared_gpu_is_measured_on_where_it_may_be(card: Card) -> None:
    card.shared = "1.0 GiB are in use on it"
    assert "record" in slot_actor.SlotTrainable(config(PLAN[0], may_share=True)).train()


class Sweep:
    """A session with a roster and a bookkeeper, on GPUs of these models (model -> how many), one node each."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, gpus: Mapping[str, int]) -> None:
        nodes = [
            Node(node_id=m, address=m, gpus=count, cpus=1, host_bytes=1, environment={"gpu_model": m})
            for m, count in gpus.items()
        ]
        self.cluster, self.output, self.now = Cluster(nodes=tuple(nodes)), io.StringIO(), 0.0
        self.folder = RunFolder(folder)
        with self.folder.locked():
            pass
        progress = Progress(len(PLAN), 1, (), stream=self.output)
        self.session = Session(Grid(PLAN), self.folder, progress, time_budget_seconds=None)
        self.roster = Roster(self.session, self.cluster)
        self.bookkeeper = Bookkeeper(self.session, self.cluster)
        there = [{"NodeID": n.node_id, "Alive": True, "Resources": {"GPU": n.gpus}} for n in nodes]
        monkeypatch.setattr(rosters.ray, "nodes", lambda: there)
        monkeypatch.setattr(rosters.time, "monotonic", lambda: self.now)

    def start(self, name: str) -> Any:
        """One of Tune's trials, with what the session gives out next."""
        return SimpleNamespace(trial_id=name, config=config(*self.session.next_trials()), error_file=None)

    def hear(self, trial: Any, unwell: str, *, done: bool = False) -> bool:
        """Its actor's word that the GPU is unwell; whether Tune is to stop it."""
        result = {"unwell": unwell, "gpu": "GPU 0 of here", "reason": "so", "gpu_model": "", "done": done}
        stopped = self.roster(trial.trial_id, result)
        self.bookkeeper.on_trial_result(0, [], trial, result)
        if stopped or done:
            self.roster.on_trial_complete(0, [], trial)
        return stopped


def test_a_trial_given_back_is_the_next_to_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep(tmp_path, monkeypatch, {"H200": 2})
    first, _ = sweep.start("a"), sweep.start("b")
    assert not sweep.hear(first, "dead")
    assert first.config["specs"] == []
    assert sweep.session.next_trials() == (PLAN[0],)
    assert sweep.roster.notes == ("GPU 0 of here fails at every CUDA call and was set aside: so",)
    sweep.bookkeeper.on_trial_error(0, [], first)  # the actor that keeps the GPU dies
    assert sweep.session.next_trials() == (PLAN[2],)


def test_a_sweep_waits_for_trials_that_may_be_given_back_and_not_for_unwell_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep(tmp_path, monkeypatch, {"H200": 2})
    tune_trials = [sweep.start(str(number)) for number in range(4)]
    assert sweep.session.next_trials() == ()
    assert not sweep.session.finished
    for spec in PLAN[1:]:
        sweep.session.ended(TrialRecord(spec=spec, outcome=Outcome.UNSUPPORTED))
    assert not sweep.hear(tune_trials[0], "lost")
    assert sweep.session.next_trials() == (PLAN[0],)
    sweep.session.ended(TrialRecord(spec=PLAN[0], outcome=Outcome.UNSUPPORTED))
    assert sweep.session.finished
    assert sweep.hear(tune_trials[0], "lost"), "the lost GPU keeps the sweep from ending"


def test_shared_gpus_are_left_until_there_is_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep(tmp_path, monkeypatch, {"H200": 2})
    assert not sweep.roster.may_share("")
    one, other = sweep.start("a"), sweep.start("b")
    assert not sweep.hear(one, "shared")
    assert not sweep.roster.may_share("")
    assert sweep.hear(other, "shared")
    assert sweep.hear(one, "shared")
    assert sweep.roster.may_share("")
    assert "no GPU is left that nobody else uses" in sweep.output.getvalue()
    assert Sweep(tmp_path / "single", monkeypatch, {"H200": 1}).roster.may_share("")


def test_when_no_gpu_is_well_the_sweep_ends_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep(tmp_path, monkeypatch, {"H200": 1})
    trial = sweep.start("a")
    sweep.hear(trial, "lost")
    for sweep.now, recovered, over in (
        (10.0, False, False),
        (700.0, True, False),
        (710.0, False, False),
        (1400.0, False, True),
    ):
        if recovered:
            sweep.hear(trial, "lost", done=True)
        sweep.roster.on_step_begin(0, [])
        if recovered:
            sweep.hear(trial, "lost")
        assert sweep.roster.stop_all() is over, sweep.now


def test_a_comparison_that_loses_its_actor_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = Sweep(tmp_path, monkeypatch, {"H200": 1})
    specs = [spec for _ in range(3) for spec in sweep.session.next_trials()]
    sweep.session.ended(TrialRecord(spec=PLAN[0], outcome=Outcome.UNSUPPORTED))
    for _ in range(slot_actor.INFRASTRUCTURE_RETRIES):
        sweep.bookkeeper.on_trial_error(0, [], SimpleNamespace(config=config(*specs)))
        assert sweep.session.next_trials() == (PLAN[1], PLAN[2])
    sweep.bookkeeper.on_trial_error(0, [], SimpleNamespace(config=config(*specs)))
    assert sweep.folder.records()[PLAN[1].trial_id].outcome is Outcome.CRASHED
    assert sweep.session.next_trials() == (PLAN[2],)
