"""Prewarmed parents: slot parents that are started before there are slots, and preload meanwhile.

Each waits at a Unix socket. A slot finds the parent of its GPU and its cores by the socket's name.
If anything is wrong with that parent, the slot starts a parent of its own.
"""

import contextlib
import functools
import os
import select
import signal
import socket
import subprocess
import weakref
from collections.abc import Iterator
from pathlib import Path

from jobs import self_process
from jobs.isolation.scratch import PARENTS_PREFIX, SLOT_PREFIX, own_folder, remove_abandoned
from jobs.node import environment, nvml
from jobs.node.processes import END_SECONDS, end_with_parent, process_variables

FOLDER_VARIABLE = "ORCHESTRATOR_PREWARMED_PARENTS"
"""Environment variable: the folder with the sockets."""


@contextlib.contextmanager
def parents(cpus: int = 0, gpus: int = 1) -> Iterator[None]:
    """While the context lasts, a parent for each slot (or the CPU) preloads, if it can be started.
    A trial has ``gpus`` GPUs and ``cpus`` cores; 0: the GPUs' share of all. If the environment
    names a folder of waiting parents, none is started."""
    if FOLDER_VARIABLE in os.environ:
        yield
        return
    devices = _devices()
    slots = [devices[at : at + gpus] for at in range(0, len(devices), gpus)]
    cores = cpus or max(1, environment.cores() // max(1, len(slots)))
    started: dict[Path, subprocess.Popen[bytes]] = {}
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # the temporary disk is full
            folder = stack.enter_context(own_folder(PARENTS_PREFIX))
            os.environ[FOLDER_VARIABLE] = str(folder)
            stack.callback(os.environ.pop, FOLDER_VARIABLE, None)
            for visible in map(",".join, slots):
                path = _socket_path(folder, visible, cores)
                with contextlib.suppress(OSError):  # for example, a path too long for a socket
                    started[path] = _start(path, visible, cores)
        try:
            yield
        finally:
            for path, parent in started.items():
                _end(parent, is_waiting=path.exists())
            # A parent that was stopped has been killed, and could not remove its folder.
            remove_abandoned(SLOT_PREFIX)


def _devices() -> list[str]:
    """The visible GPUs as CUDA_VISIBLE_DEVICES names each; ``[""]`` for a CPU without GPUs; ``[]``
    if a GPU is lost."""
    import pynvml

    try:
        return list(map(nvml.visible_device, nvml.visible_uuids())) or [""]
    except pynvml.NVMLError:
        return []


def _start(path: Path, devices: str, cpus: int) -> subprocess.Popen[bytes]:
    """Start a parent that waits at the socket ``path`` and sees these GPUs alone ("": a CPU)."""
    variables = {**os.environ, **process_variables(cpus)}
    if devices:
        variables["CUDA_VISIBLE_DEVICES"] = devices
    with socket.socket(socket.AF_UNIX) as listener, open(path.with_suffix(".err"), "w") as errors:
        # Bound and listening before the parent starts: a slot can connect at once and wait for it.
        listener.bind(str(path))
        listener.listen(1)
        parent = subprocess.Popen(
            self_process.command("jobs.isolation.forkserver", "--socket", str(listener.fileno())),
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            env=variables,
            pass_fds=[listener.fileno()],
            start_new_session=True,  # Ctrl-C is for the driver
            # Before the parent's own code, so that one that is stopped at once ends, too.
            preexec_fn=functools.partial(end_with_parent, os.getpid()),
        )
    try:
        _claim_file(path).write_text(str(parent.pid))
    except OSError:  # no slot can take it over
        _end(parent, is_waiting=True)
        raise
    return parent


def _end(parent: subprocess.Popen[bytes], *, is_waiting: bool) -> None:
    """End a parent. One that was taken over ends with its slot, and is killed if it does not."""
    for kills_first in (is_waiting, True):
        if kills_first:
            parent.kill()
        # A process in uninterruptible sleep ends only when its disk or driver answers.
        with contextlib.suppress(subprocess.TimeoutExpired):
            parent.wait(END_SECONDS)
            return


def _socket_path(folder: Path, devices: str, cpus: int) -> Path:
    return folder / f"{devices or 'cpu'}-{cpus}"


def _claim_file(path: Path) -> Path:
    """The file with the process id of the parent that waits at a socket, until a slot tries it."""
    return path.with_suffix(".pid")


def _claim(path: Path) -> int:
    """The process id of the parent at this socket, which no other slot can try any more: a stopped
    parent shall not hold up every slot. Raises OSError if another slot was first."""
    pid = int(_claim_file(path).read_text())
    _claim_file(path).unlink()  # one of several slots succeeds
    return pid


def accept(listener: socket.socket) -> socket.socket:
    """In the parent: wait for a slot. Only one slot can take a parent over."""
    # Under memory pressure the kernel shall kill this process rather than the driver, as Ray's
    # workers. 1000 is the highest score (proc(5)).
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with listener:
        connection, _ = listener.accept()
        Path(listener.getsockname()).unlink(missing_ok=True)
    return connection


class PrewarmedParent:
    """A parent that a slot has taken over: no child of this process, but a part of a ``Popen``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)
        weakref.finalize(self, os.close, self._pidfd)

    def poll(self) -> int | None:
        """None while it lives, then 0: only the process that started it can know its status."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def wait(self, timeout: float) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired if it is still alive then."""
        # Not ``select``, which fails for descriptors from 1024 on. A Ray worker may have those.
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        if not poll.poll(timeout * 1000):  # milliseconds
            raise subprocess.TimeoutExpired("jobs.isolation.forkserver", timeout)
        return 0

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


def take_over(cpus: int) -> tuple[PrewarmedParent, socket.socket, int] | None:
    """A waiting parent for these cores, its socket, and its stderr's descriptor; None: none."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder is None:
        return None
    # A parent has its GPUs and its number of threads from the start, so both are in the name.
    devices = ",".join(map(nvml.visible_device, nvml.visible_uuids()))
    path = _socket_path(Path(folder), devices, cpus)
    connection = socket.socket(socket.AF_UNIX)
    try:
        parent = PrewarmedParent(_claim(path))
        connection.connect(str(path))
        return parent, connection, os.open(path.with_suffix(".err"), os.O_RDONLY)
    except OSError:
        connection.close()
        return None
