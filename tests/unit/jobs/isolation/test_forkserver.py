"""How a slot's parent accounts its children's GPU memory, with SIMULATED children and GPU."""

import functools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jobs.isolation import child_handle, forkserver
from jobs.isolation.child_runner import ChildRunner
from jobs.node import gpu_fitness
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec, to_json
from orchestrator.units import MIB
from tests.conftest import build_tiny_spec

CONTEXT = 500 * MIB


@dataclass
class Gpu:
    """A GPU with memory of other processes and the contexts of our children."""

    others: int = 600 * MIB
    contexts: int = 0
    outcome: Outcome = Outcome.OK
    children: list["FakeChild"] = field(default_factory=list)

    @property
    def used(self) -> int:
        return self.others + self.contexts * CONTEXT


class FakeChild:
    """A child that has its result as soon as it gets its trial."""

    log = ""
    phase = "steps"
    busy_seconds = 1.0
    has_started = True
    is_done = True

    def __init__(self, gpu: Gpu, folder: Path, *, has_context: bool) -> None:
        self._gpu = gpu
        self._has_context = has_context
        self.is_alive = True
        self.result = folder / f"{len(gpu.children)}.json"
        self.context_bytes = -1
        """What it was sent; -1: it had no trial."""
        gpu.contexts += has_context
        gpu.children.append(self)

    def is_ready(self, deadline: float, owner: socket.socket) -> bool:
        return self._has_context

    def begin(self, spec: TrialSpec, context_bytes: int, variables: dict[str, str]) -> None:
        self.context_bytes = context_bytes
        record = TrialRecord(spec=spec, outcome=self._gpu.outcome)
        self.result.write_text(json.dumps(to_json(record)))

    def kill(self) -> None:
        self.is_alive = False

    def reap(self) -> int:
        assert not self.is_alive
        self._gpu.contexts -= self._has_context
        return 3


Run = Callable[[str], FakeChild]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu()
    forked = functools.partial(FakeChild, gpu, has_context=True)
    spawned = functools.partial(FakeChild, gpu, has_context=False)
    monkeypatch.setattr(child_handle, "fork", lambda folder, owner, variables: forked(folder))
    monkeypatch.setattr(child_handle, "spawn", lambda spec, folder, variables: spawned(folder))
    return gpu


@pytest.fixture
def runner(gpu: Gpu, tmp_path: Path) -> Iterator[ChildRunner]:
    with socket.socket() as unused:
        runner = ChildRunner(tmp_path, unused, release_seconds=0.05, gpu_bytes=lambda: gpu.used)
        yield runner
        runner.close()
    assert gpu.contexts == 0
    assert not any(child.is_alive for child in gpu.children)


@pytest.fixture
def run(gpu: Gpu, runner: ChildRunner) -> Run:
    """Runs a trial, has the next child forked ahead, and returns the child that ran it."""

    def run(isolation: str) -> FakeChild:
        record = runner.run(build_tiny_spec(), 10.0, isolation)
        assert (record.outcome, record.slot_seconds) == (gpu.outcome, 1.0)
        assert record.provenance.isolation == isolation
        runner.fork_ahead(record)
        return next(child for child in reversed(gpu.children) if child.context_bytes >= 0)

    return run


def test_runner_measures_the_context_once_for_all_children(gpu, run):
    ran = [run("fork") for _ in range(3)]
    assert [child.context_bytes for child in ran] == [CONTEXT] * 3
    assert ran == gpu.children[:3]
    assert (len(gpu.children), gpu.contexts) == (4, 1), "the fourth is forked ahead"


def test_requests_end_the_idle_child_if_none_comes(gpu, runner):
    runner.fork_ahead(runner.run(build_tiny_spec(), 10.0, "fork"))
    ours, slots = socket.socketpair()
    requests = forkserver._requests(ours, runner, idle_seconds=0.0)
    slots.sendall(b'{"spec": 1}\n')
    assert (next(requests), gpu.contexts) == ({"spec": 1}, 1)
    later = threading.Timer(0.2, slots.close)
    later.start()
    assert (next(requests, None), gpu.contexts) == (None, 0)
    later.join()
    ours.close()


def test_runner_with_a_fresh_trial_ends_the_child_forked_ahead(gpu, run):
    run("fork")
    assert run("fresh") is gpu.children[2]
    assert (gpu.children[1].context_bytes, gpu.contexts) == (-1, 0)


def test_runner_on_a_gpu_that_others_begin_to_use_measures_each_context_anew(gpu, run):
    run("fork")
    gpu.others = 2 * gpu_fitness.IDLE_BYTES
    assert run("fork").context_bytes == CONTEXT
    assert (len(gpu.children), gpu.contexts) == (3, 1), "it was forked before that was known"
    assert run("fork").context_bytes == CONTEXT
    assert (len(gpu.children), gpu.contexts) == (3, 0), "none is forked ahead"


@pytest.mark.parametrize(("outcome", "ahead"), [(Outcome.FAILED, 0), (Outcome.OUT_OF_MEMORY, 1)])
def test_runner_after_a_suspicious_outcome_forks_nothing_ahead(outcome, ahead, gpu, run):
    gpu.outcome = outcome
    run("fork")
    assert gpu.contexts == ahead


def test_runner_without_a_context_forks_nothing_ahead(gpu, run, monkeypatch):
    monkeypatch.setattr(FakeChild, "is_ready", lambda self, deadline, owner: False)
    assert [run("fork").context_bytes, run("fork").context_bytes] == [0, 0]
    assert len(gpu.children) == 2
