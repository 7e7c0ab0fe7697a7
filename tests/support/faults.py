"""Faults for trials: hooks at the place "model" that end or hang the trial's process.

A process has them if ``ORCHESTRATOR_HOOK_MODULES`` names this module; tests/conftest.py sets it.
"""

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from jobs.node.process_group import RENDEZVOUS
from jobs.record import TrialRecord
from jobs.spec import Hook, TrialSpec
from jobs.techniques.hooks import hook, registered

PREFIX = "faults."
"""Of the names of this file's hooks."""
taken = socket.socket()
"""What ``take_port`` listens at."""


def with_fault(spec: TrialSpec, name: str, **arguments: Any) -> TrialSpec:
    """The same trial with a fault of this file; ``arguments`` are the fault's keyword arguments."""
    hooks = {**spec.settings.hooks, "model": Hook(f"{PREFIX}{name}", arguments)}
    return replace(spec, settings=replace(spec.settings, hooks=hooks))


@hook("faults.hang")
def hang(model: Any, task: str, arguments: Any, *, announce: str | None = None) -> NoReturn:
    """Never end. ``announce`` is the named pipe of an ``Announcement``."""
    if announce is not None:
        _announce(announce)
    while True:
        time.sleep(60)


@hook("faults.in_rank")
def in_rank(model: Any, task: str, arguments: Any, *, rank: int, fault: str, **more: Any) -> Any:
    """Another fault of this file, in one rank of the trial only."""
    if os.environ["RANK"] == str(rank):
        return registered(PREFIX + fault)(model, task, arguments, **more)
    return model


STRIKE = "strike"
"""A trial's choice: RANK PHASE FAULT, a fault without arguments as the rank enters the phase."""


def striking(run: Callable[..., TrialRecord]) -> Callable[..., TrialRecord]:
    """``jobs.trial.run.run`` with what a trial's choice ``STRIKE`` asks for."""

    def run_struck(spec: TrialSpec, announce: Callable[[str], None], **options: Any) -> TrialRecord:
        rank, at, fault = str(spec.choices.get(STRIKE, "- - -")).split()

        def announce_and_strike(phase: str) -> None:
            announce(phase)
            if (os.environ.get("RANK"), phase) == (rank, at):
                registered(PREFIX + fault)(None, spec.model.task, None)

        return run(spec, announce_and_strike, **options)

    return run_struck


def patient(wait_for: Callable[..., bool]) -> Callable[..., bool]:
    """``jobs.isolation.child_handle.wait_for`` whose seconds, at least one, begin anew with each
    phase, so that no trial is late because the machine is slow."""

    def wait_for_phases(
        children: Sequence[Any], is_over: Callable[[], bool], deadline: float, owner: socket.socket
    ) -> bool:
        seconds = max(1.0, deadline - time.monotonic())
        progress: list[int] = []
        while True:
            now = time.monotonic()
            before, progress = progress, [child.progress for child in children]
            if progress != before or not any(progress):
                late_at = now + seconds
            if wait_for(children, is_over, min(late_at, now + 0.1), owner):
                return True
            if now > late_at:
                return False

    return wait_for_phases


@hook("faults.stop")
def stop(model: Any, task: str, arguments: Any) -> Any:
    """Stand still."""
    os.kill(os.getpid(), signal.SIGSTOP)
    return model


@hook("faults.hang_once")
def hang_once(model: Any, task: str, arguments: Any, *, announce: str) -> Any:
    """Hang while the announcement's pipe exists; afterwards do nothing."""
    if os.path.exists(announce):
        hang(model, task, arguments, announce=announce)
    return model


@hook("faults.hang_with_stubborn_grandchild")
def hang_with_stubborn_grandchild(
    model: Any, task: str, arguments: Any, *, announce: str
) -> NoReturn:
    """Hang together with a child process that ignores SIGTERM and announces both."""
    child = os.getpid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _announce(announce, child=child, grandchild=os.getpid())
    hang(model, task, arguments)


@hook("faults.note_pids")
def note_pids(model: Any, task: str, arguments: Any, *, file: str) -> Any:
    """No fault: write down the process's id and its parent's."""
    Path(file).write_text(json.dumps({"child": os.getpid(), "parent": os.getppid()}))
    return model


@hook("faults.note_variables")
def note_variables(model: Any, task: str, arguments: Any, *, file: str, names: list[str]) -> Any:
    """No fault: write down variables of the process's environment."""
    Path(file).write_text(json.dumps({name: os.environ.get(name) for name in names}))
    return model


@hook("faults.sleep_between_steps")
def sleep_between_steps(model: Any, task: str, arguments: Any, *, seconds: float) -> Any:
    """No fault: a Trainer callback that sleeps at the end of every step, as a slow logger would."""
    import transformers
    from transformers import trainer

    class Sleeper(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            time.sleep(seconds)

    trainer.DEFAULT_CALLBACKS.append(Sleeper)
    return model


@hook("faults.kill")
def kill(model: Any, task: str, arguments: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@hook("faults.note_scratch_and_die")
def note_scratch_and_die(model: Any, task: str, arguments: Any, *, file: str) -> None:
    """Write files to the trial's scratch folder, write down its name, and be killed."""
    Path(arguments.output_dir, "states.bin").write_bytes(bytes(1000))
    Path(file).write_text(arguments.output_dir)
    os.kill(os.getpid(), signal.SIGKILL)


@hook("faults.segfault")
def segfault(model: Any, task: str, arguments: Any) -> None:
    ctypes.string_at(0)


@hook("faults.abort")
def abort(model: Any, task: str, arguments: Any) -> NoReturn:
    """End as a failed assertion of a C++ library does."""
    os.abort()


@hook("faults.raise_error")
def raise_error(model: Any, task: str, arguments: Any) -> NoReturn:
    raise ValueError("the fault that was asked for")


@hook("faults.raise_memory_error")
def raise_memory_error(model: Any, task: str, arguments: Any) -> NoReturn:
    raise MemoryError("no host memory left")


@hook("faults.raise_device_oom")
def raise_device_oom(model: Any, task: str, arguments: Any) -> NoReturn:
    """The GPU has no memory left, in CUDA's words."""
    raise RuntimeError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 80.00 GiB"
    )


@hook("faults.raise_disk_full")
def raise_disk_full(model: Any, task: str, arguments: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "states.bin")


@hook("faults.exit_well")
def exit_well(model: Any, task: str, arguments: Any) -> NoReturn:
    os._exit(0)


@hook("faults.leave_a_child")
def leave_a_child(model: Any, task: str, arguments: Any) -> NoReturn:
    """Be killed with a child that ignores SIGTERM and writes nothing."""
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hang(model, task, arguments)
    kill(model, task, arguments)
    raise AssertionError


@hook("faults.lose_rendezvous")
def lose_rendezvous(model: Any, task: str, arguments: Any) -> None:
    """Remove the file at which the ranks meet, once the other has come to it and ever after: who
    has written nothing yet would make it anew."""
    file = Path(urlsplit(os.environ[RENDEZVOUS]).path)
    while not file.exists():
        time.sleep(0.01)

    def remove() -> None:
        while True:
            file.unlink(missing_ok=True)
            time.sleep(0.001)

    threading.Thread(target=remove, daemon=True).start()


@hook("faults.take_port")
def take_port(model: Any, task: str, arguments: Any) -> None:
    """No fault where no port is needed: listen at the port of the rendezvous."""
    with contextlib.suppress(OSError):  # another process does
        taken.bind(("127.0.0.1", int(os.environ["MASTER_PORT"])))
        taken.listen()


@hook("faults.kill_parent")
def kill_parent(model: Any, task: str, arguments: Any) -> NoReturn:
    """Kill the slot's parent, which ends this process, too."""
    os.kill(os.getppid(), signal.SIGKILL)
    hang(model, task, arguments)


@hook("faults.exit_silently")
def exit_silently(model: Any, task: str, arguments: Any) -> NoReturn:
    os._exit(3)


@hook("faults.kill_slots_owner")
def kill_slots_owner(model: Any, task: str, arguments: Any) -> NoReturn:
    """Kill the process that owns the slot, in a sweep an actor; the slot then ends this process."""
    os.kill(parent_of(os.getppid()), signal.SIGKILL)
    hang(model, task, arguments)


class Announcement:
    """A named pipe through which a hanging trial reports the ids of the processes involved."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        os.mkfifo(path)
        self._read = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def wait(self, seconds: float = 120.0) -> dict[str, int]:
        """Role -> process id. Removes the pipe. Raises TimeoutError if no report comes."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        try:
            if not poll.poll(seconds * 1000):
                raise TimeoutError(f"nothing was announced in {seconds:g} s")
            pids: dict[str, int] = json.loads(os.read(self._read, select.PIPE_BUF))
            return pids
        finally:
            os.close(self._read)
            os.unlink(self.path)


def _announce(path: str, **pids: int) -> None:
    message = {"child": os.getpid(), "parent": os.getppid(), **pids}
    with open(path, "w") as pipe:
        pipe.write(json.dumps(message))


def has_ended(pid: int, seconds: float = 60.0) -> bool:
    """Whether a process has ended, or ends within ``seconds``. A zombie has ended."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(process, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(process)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def idle_child(slot_pid: int) -> int:
    """The process that is forked ahead for a slot's next trial, once the last has ended."""
    children = Path(f"/proc/{slot_pid}/task/{slot_pid}/children")
    give_up = time.monotonic() + 120.0
    while True:
        pids = [int(word) for word in children.read_text().split()]
        if len(pids) == 1 and not has_ended(pids[0], seconds=0.5):
            return pids[0]
        assert time.monotonic() < give_up
