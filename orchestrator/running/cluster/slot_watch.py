"""A time limit for slots: one that does not answer is killed, and its trial runs in another slot.

A slot's parent process enforces the timeout of a trial, but not if the actor itself hangs (SIGSTOP,
a dead network filesystem, a hung node).
"""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import ray
from ray import tune
from ray.tune.experiment import Trial

from orchestrator.running.cluster.gpu_slot import INFRASTRUCTURE_RETRIES
from orchestrator.running.cluster.messages import Assignment, SlotProcess
from orchestrator.running.cluster.ray_nodes import on_node
from orchestrator.running.cluster.searcher import LOOK_SECONDS, StatelessPickle
from orchestrator.units import duration

ANSWER_SECONDS = 120.0
"""Time that a slot may take beyond its trial: to start a parent, or to wait for or check a GPU."""
START_SECONDS = 300.0
"""If no slot starts for so long while none runs, a Ray without other users counts as stuck."""


def allowance_seconds(assignment: Assignment) -> float:
    """How long a slot may take for one step: its trial, with all attempts that a slot may make."""
    timeouts = [spec.measure.timeout_seconds for spec in assignment.specs]
    longest = min(max(timeouts, default=0.0), max(0.0, assignment.seconds_left))
    return INFRASTRUCTURE_RETRIES * longest + ANSWER_SECONDS


@dataclass(slots=True)
class _Wait:
    actor: Any
    process: Any
    """Ray's reference of the actor's ``SlotProcess``."""
    allowance: float
    due: float


class SlotWatch(StatelessPickle, tune.Callback):
    """Gives up on slots that do not answer; Tune then reports a lost actor. ``on_stall`` is called
    if no slot starts at all; None: slots may wait for other users of the cluster."""

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        on_stall: Callable[[str], None] | None = None,
        kill: Callable[[Any, SlotProcess | None], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._on_stall = on_stall
        self._kill = kill or kill_actor
        self._clock = clock
        self._waits: dict[str, _Wait] = {}
        """Tune trial -> the answer that is awaited from its slot."""
        self._next_look = 0.0
        self._idle_since: float | None = None
        self._process_of: dict[int, tuple[Any, Any]] = {}
        """Id of an actor, which runs many trials -> the actor, and the reference of its process."""

    def began(self, tune_trial_id: str, actor: Any, process: Any, assignment: Assignment) -> None:
        """A slot was given its trials."""
        self._process_of[id(actor)] = (actor, process)
        self._await(tune_trial_id, actor, process, allowance_seconds(assignment))

    def _await(self, tune_trial_id: str, actor: Any, process: Any, allowance: float) -> None:
        due = self._clock() + allowance
        self._waits[tune_trial_id] = _Wait(actor, process, allowance, due)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """A slot has answered. Its next answer may take as long again."""
        wait = self._waits.get(trial.trial_id)
        if wait is not None:
            wait.due = self._clock() + wait.allowance

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The Tune trial has ended, so no answer is awaited any more."""
        self._waits.pop(trial.trial_id, None)

    on_trial_error = on_trial_complete

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        waiting = [trial for trial in trials if trial.status == Trial.PENDING]
        for trial in waiting:
            # Tune resets an actor between two trials, which is an answer, too.
            actor = trial.temporary_state.ray_actor
            if actor is not None and trial.trial_id not in self._waits:
                _, process = self._process_of.get(id(actor), (actor, None))
                self._await(trial.trial_id, actor, process, ANSWER_SECONDS)
        self._watch_start(now, is_waiting=bool(waiting))
        for name in [name for name, wait in self._waits.items() if now > wait.due]:
            self._give_up(self._waits.pop(name))

    def _give_up(self, wait: _Wait) -> None:
        waited = duration(wait.allowance)
        self._say(f"a slot has not answered for {waited}: it is given up and killed")
        self._process_of.pop(id(wait.actor), None)
        self._kill(wait.actor, _arrived(wait.process))

    def _watch_start(self, now: float, *, is_waiting: bool) -> None:
        if self._waits or not is_waiting or self._on_stall is None:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now > self._idle_since + START_SECONDS:
            self._on_stall(
                f"no slot has started for {duration(START_SECONDS)}: a process of Ray does not"
                " answer; the same command with --resume goes on"
            )


def _arrived(reference: Any) -> SlotProcess | None:
    """The actor's process, if the actor has reported it."""
    # Without a connection, ``ray.get`` would start a Ray of its own.
    if not ray.is_initialized():
        return None
    with contextlib.suppress(ray.exceptions.RayError, TypeError, ValueError):
        answer = ray.get(reference, timeout=0)
        if isinstance(answer, SlotProcess):
            return answer
    return None


def kill_actor(actor: Any, process: SlotProcess | None) -> None:
    """Kill an actor's process and its descendants; if that fails, Ray still drops the actor."""
    if process is not None:
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            on_node(process.node_id, gpus=0)(kill_tree).remote(process.pid, process.start_ticks)
    ray.kill(actor)


def kill_tree(pid: int, start_ticks: int) -> None:
    """Kill a process of this node and its descendants, which may be stopped."""
    with contextlib.suppress(psutil.Error, OSError):
        # Another process may have the same pid by now.
        if start_ticks_of(pid) != start_ticks:
            return
        process = psutil.Process(pid)
        for target in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                target.kill()


def start_ticks_of(pid: int) -> int:
    """When a process started, in clock ticks since the boot, whatever the clock. Raises OSError."""
    stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    # The second field is the name in brackets, which may contain spaces; the start is field 22.
    return int(stat.rpartition(")")[2].split()[22 - 3])


def this_process(node_id: str) -> SlotProcess:
    pid = os.getpid()
    return SlotProcess(node_id=node_id, pid=pid, start_ticks=start_ticks_of(pid))
