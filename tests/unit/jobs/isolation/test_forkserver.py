"""What a slot's parent makes of its children's GPU memory: a context seen once, and everything else's owner."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jobs.isolation import child_handle, forkserver
from jobs.isolation.forkserver import Children
from jobs.node import nvml
from jobs.record import Outcome, TrialRecord, record_to_json
from jobs.spec import TrialSpec
from tests.conftest import build_tiny_spec

CONTEXT, MIB = 500 * 2**20, 2**20


@dataclass
class Gpu:
    """A simulated one: what others hold of it, and how many children's contexts are there."""

    others: int = 600 * MIB
    contexts: int = 0
    outcome: Outcome = Outcome.OK
    children: list[Stand] = field(default_factory=list)

    @property
    def used(self) -> int:
        return self.others + self.contexts * CONTEXT


class Stand:
    """In a child's place: it has its result as soon as it is asked."""

    log, phase, busy_seconds = "", "steps", 1.0

    def __init__(self, gpu: Gpu, folder: Path, *, has_context: bool) -> None:
        self._gpu, self._has_context, self.lives = gpu, has_context, True
        self.result, self.told = folder / f"{len(gpu.children)}.json", -1
        gpu.contexts += has_context
        gpu.children.append(self)

    def is_ready(self, give_up: float, requests: int) -> bool:
        return self._has_context

    def begin(self, spec: TrialSpec, context_bytes: int) -> None:
        self.told = context_bytes
        isolation = "fork" if self._has_context else "fresh"
        record = TrialRecord(spec=spec, outcome=self._gpu.outcome, isolation=isolation)
        self.result.write_text(json.dumps(record_to_json(record)))

    def wait(self, give_up: float, requests: int) -> bool:
        return True

    def kill(self) -> None:
        self.lives = False

    def reap(self) -> int:
        assert not self.lives
        self._gpu.contexts -= self._has_context
        return 3


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Children are simulated, and what NVML says."""
    one = Gpu()
    monkeypatch.setattr(
        child_handle, "fork", lambda folder, channels: Stand(one, folder, has_context=True)
    )
    monkeypatch.setattr(
        child_handle, "spawn", lambda spec, folder: Stand(one, folder, has_context=False)
    )
    monkeypatch.setattr(forkserver, "_device_bytes", lambda: one.used)
    monkeypatch.setattr(forkserver, "_RELEASE_SECONDS", 0.05)
    return one


@pytest.fixture
def run(gpu: Gpu, tmp_path: Path) -> Iterator[Callable[[str], Stand]]:
    """Runs a trial, has the next made ready, and returns the child that ran it."""
    children = Children(tmp_path, (0, 1))

    def run(isolation: str) -> Stand:
        record = children.run(build_tiny_spec(), 10.0, isolation)
        assert (record.outcome, record.slot_seconds) == (gpu.outcome, 1.0)
        children.make_ready(record)
        return next(one for one in reversed(gpu.children) if one.told >= 0)

    yield run
    children.close()
    assert gpu.contexts == 0
    assert not any(one.lives for one in gpu.children)


def test_a_context_is_seen_once_and_told_to_every_child(
    gpu: Gpu, run: Callable[[str], Stand]
) -> None:
    ran = [run("fork") for _ in range(3)]
    assert [one.told for one in ran] == [CONTEXT] * 3
    assert ran == gpu.children[:3]
    assert (len(gpu.children), gpu.contexts) == (4, 1)


def test_nothing_stays_on_a_gpu_for_which_nobody_asks(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forkserver, "PATIENCE_SECONDS", 0.0)
    children = Children(tmp_path, (0, 1))
    children.make_ready(children.run(build_tiny_spec(), 10.0, "fork"))
    reading, writing = os.pipe()
    asked = forkserver._asked(reading, children)
    os.write(writing, b'{"spec": 1}\n')
    assert (next(asked), gpu.contexts) == ({"spec": 1}, 1)
    later = threading.Timer(0.2, os.close, [writing])
    later.start()
    assert (next(asked, None), gpu.contexts) == (None, 0)
    later.join()
    os.close(reading)


def test_a_fresh_process_finds_nobody_that_waits(gpu: Gpu, run: Callable[[str], Stand]) -> None:
    run("fork")
    assert run("fresh") is gpu.children[2]
    assert (gpu.children[1].told, gpu.contexts) == (-1, 0)


def test_one_that_ended_while_it_waited_is_replaced(gpu: Gpu, run: Callable[[str], Stand]) -> None:
    run("fork")
    gpu.children[1].kill()
    assert run("fork") is gpu.children[2]


def test_beside_somebody_else_each_child_is_seen_anew(
    gpu: Gpu, run: Callable[[str], Stand]
) -> None:
    gpu.others = 2 * nvml.IDLE_BYTES
    assert [run("fork").told, run("fork").told] == [CONTEXT] * 2
    assert (len(gpu.children), gpu.contexts) == (2, 0)


def test_who_comes_in_between_is_not_taken_for_a_context(
    gpu: Gpu, run: Callable[[str], Stand]
) -> None:
    run("fork")
    gpu.others = 2 * nvml.IDLE_BYTES
    assert run("fork").told == CONTEXT
    assert (len(gpu.children), gpu.contexts) == (3, 1), "it was forked before that was known"
    assert run("fork").told == CONTEXT
    assert (len(gpu.children), gpu.contexts) == (3, 0)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.OUT_OF_MEMORY])
def test_after_a_failure_others_look_at_the_gpu_first(
    outcome: Outcome, gpu: Gpu, run: Callable[[str], Stand]
) -> None:
    gpu.outcome = outcome
    run("fork")
    assert gpu.contexts == (outcome is Outcome.OUT_OF_MEMORY)


def test_where_no_context_could_be_made_none_is_made_ahead(
    gpu: Gpu, run: Callable[[str], Stand], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stand, "is_ready", lambda self, give_up, requests: False)
    assert [run("fork").told, run("fork").told] == [0, 0]
    assert len(gpu.children) == 2
