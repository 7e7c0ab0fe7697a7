"""A slot that does not answer is given up a stated time after its trial's timeout."""

import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from jobs.spec import TrialSpec
from orchestrator.running.cluster import slot_watch
from orchestrator.running.cluster.messages import Assignment, SlotProcess
from orchestrator.running.cluster.slot_watch import ANSWER_SECONDS, START_SECONDS, SlotWatch
from tests.conftest import build_tiny_spec
from tests.support.clock import Clock

TIMEOUT = 50.0


def assignment(*specs: TrialSpec, seconds_left: float = 1e6) -> Assignment:
    return Assignment(specs=specs, seconds_left=seconds_left, may_share=False, gpu_model="")


def tune_trial(name: str, status: str, actor: object = None) -> Any:
    state = SimpleNamespace(ray_actor=actor)
    return SimpleNamespace(trial_id=name, status=status, temporary_state=state)


class Watched:
    """A watch whose clock, messages and killed actors can be seen."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.killed: list[object] = []
        self.messages: list[str] = []
        self.stalls: list[str] = []
        self.watch = SlotWatch(
            self.messages.append, on_stall=self.stalls.append, kill=self.kill, clock=self.clock
        )

    def kill(self, actor: Any, process: SlotProcess | None) -> None:
        self.killed.append(actor)

    def after(self, seconds: float, *trials: Any) -> None:
        self.clock.now += seconds
        self.watch.on_step_begin(0, list(trials))


@pytest.fixture
def watched() -> Watched:
    """A slot that was given one trial, at time 0."""
    watched = Watched()
    spec = build_tiny_spec(timeout_seconds=TIMEOUT)
    watched.watch.began("t", "actor", None, assignment(spec))
    return watched


def test_slot_that_does_not_answer_is_killed_once(watched):
    allowance = 2 * TIMEOUT + ANSWER_SECONDS
    running = tune_trial("t", "RUNNING", "actor")
    watched.after(allowance - 1, running)
    assert watched.killed == []
    watched.after(2, running)
    watched.after(allowance, running)
    assert watched.killed == ["actor"]
    (message,) = watched.messages
    assert "has not answered for" in message


def test_answer_gives_the_next_one_as_much_time(watched):
    running = tune_trial("t", "RUNNING", "actor")
    for _ in range(3):
        watched.after(2 * TIMEOUT + ANSWER_SECONDS - 1, running)
        watched.watch.on_trial_result(0, [], running, {})
    assert watched.killed == []


@pytest.mark.parametrize("ending", ["on_trial_complete", "on_trial_error"])
def test_ended_trial_is_awaited_no_more(ending, watched):
    getattr(watched.watch, ending)(0, [], tune_trial("t", "TERMINATED"))
    watched.after(1e5)
    assert watched.killed == []


def test_actor_that_stops_between_two_trials_is_killed():
    watched = Watched()
    resetting = tune_trial("next", "PENDING", "actor")
    watched.after(5, resetting)
    watched.after(ANSWER_SECONDS + 1, resetting)
    assert watched.killed == ["actor"]


def test_allowance_ends_with_the_time_budget():
    spec = build_tiny_spec(timeout_seconds=TIMEOUT)
    longer = build_tiny_spec(timeout_seconds=90)
    allowance = slot_watch.allowance_seconds
    assert allowance(assignment(spec, longer)) == 180 + ANSWER_SECONDS
    assert allowance(assignment(spec, seconds_left=10)) == 20 + ANSWER_SECONDS
    assert allowance(assignment()) == ANSWER_SECONDS


def test_slots_that_never_start_end_the_sweep():
    watched = Watched()
    waiting = tune_trial("t", "PENDING")
    watched.after(5, waiting)
    watched.after(START_SECONDS - 1, waiting)
    assert watched.stalls == []
    watched.after(2, waiting)
    assert "no slot has started" in watched.stalls[0]


def test_running_slot_is_no_stall(watched):
    trials = (tune_trial("t", "RUNNING", "actor"), tune_trial("next", "PENDING"))
    for _ in range(100):
        watched.after(60, *trials)
        watched.watch.on_trial_result(0, [], trials[0], {})
    assert watched.stalls == []


def test_stopped_process_is_killed_with_what_it_started():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        parent = psutil.Process(process.pid)
        while not (children := parent.children()):
            pass
        os.kill(process.pid, signal.SIGSTOP)
        ticks = slot_watch.start_ticks_of(process.pid)
        slot_watch.kill_tree(process.pid, ticks + 1)
        with pytest.raises(subprocess.TimeoutExpired):  # another process has that number
            process.wait(timeout=0.2)
        slot_watch.kill_tree(process.pid, ticks)
        process.wait()
        psutil.wait_procs(children, timeout=120)
        assert not children[0].is_running() or children[0].status() == psutil.STATUS_ZOMBIE
