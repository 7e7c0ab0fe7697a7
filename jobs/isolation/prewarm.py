"""Slots' parents that were started before their slots: they preload, and wait at a socket to be taken over.

Who starts a cluster on this machine has them preload meanwhile. A slot below finds the one of its GPU and its cores by
name; whatever is not right there, it starts a parent of its own.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from jobs.isolation import preload
from jobs.isolation.scratch import own_folder
from jobs.node import environment, nvml

FOLDER_VARIABLE = "ORCHESTRATOR_WAITING_PARENTS"
"""Names the folder of the sockets to the processes below the one that started the parents."""
_PATIENCE_SECONDS = 5.0


@contextlib.contextmanager
def parents(cpus: int = 0) -> Iterator[None]:
    """A parent for each of this machine's GPUs, or for its processor, waits while the context lasts.

    ``cpus`` are the cores of a trial; 0: its GPU's share of them all. Where one cannot be had, none waits.
    """
    uuids = _uuids()
    share = cpus or max(1, environment.cores() // max(1, len(uuids)))
    with own_folder("orchestrator-parents-") as folder:
        started = {}
        for place, uuid in ((_place(folder, uuid, share), uuid) for uuid in uuids):
            with contextlib.suppress(
                OSError
            ):  # for one, a folder whose name is too long for a socket's
                started[place] = _start(place, uuid, share)
        os.environ[FOLDER_VARIABLE] = str(folder)
        try:
            yield
        finally:
            del os.environ[FOLDER_VARIABLE]
            for place, parent in started.items():
                _end(parent, is_waiting=place.exists())


def _uuids() -> list[str]:
    """Of the GPUs; of the processor the empty one; none where a GPU is lost, for others to say so."""
    import pynvml

    try:
        return nvml.visible_uuids() or [""]
    except pynvml.NVMLError:
        return []


def _start(place: Path, uuid: str, cpus: int) -> subprocess.Popen[bytes]:
    gpu = {"CUDA_VISIBLE_DEVICES": nvml.visible_device(uuid)} if uuid else {}
    with socket.socket(socket.AF_UNIX) as door, open(place.with_suffix(".err"), "w") as errors:
        door.bind(str(place))
        door.listen(1)
        parent = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "jobs.isolation.forkserver",
                "--door",
                str(door.fileno()),
                str(os.getpid()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            env={**os.environ, **preload.environment(cpus), **gpu},
            pass_fds=[door.fileno()],
            start_new_session=True,  # Ctrl-C is the driver's to deal with
        )
    place.with_suffix(".pid").write_text(str(parent.pid))
    return parent


def _end(parent: subprocess.Popen[bytes], *, is_waiting: bool) -> None:
    """One that was taken over ends with its slot."""
    if is_waiting:
        parent.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        parent.wait(_PATIENCE_SECONDS)
        return
    parent.kill()
    parent.wait()


def _place(folder: Path, uuid: str, cpus: int) -> Path:
    return folder / f"{uuid or 'processor'}-{cpus}"


def taken(door: int) -> tuple[int, int]:
    """Wait at this listening socket to be taken over: descriptors of the requests to read and of the replies to write.
    Nobody else can."""
    with contextlib.suppress(OSError):  # as Ray's workers, and what they start
        Path("/proc/self/oom_score_adj").write_text("1000")
    with socket.socket(fileno=door) as listener, listener.accept()[0] as line:
        Path(listener.getsockname()).unlink(missing_ok=True)
        _, (requests, replies), _, _ = socket.recv_fds(line, 1, 2)
    return requests, replies


class TakenOver:
    """A parent that waited, as far as a slot uses ``Popen``: its end is seen though it is not this process's child."""

    def __init__(self, place: Path) -> None:
        """Raises OSError where none waits."""
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(place))
            self.pid = int(place.with_suffix(".pid").read_text())
            self._end: int | None = os.pidfd_open(self.pid)
            (requests, to_parent), (from_parent, replies) = os.pipe(), os.pipe()
            socket.send_fds(line, [b"!"], [requests, replies])
        os.close(requests)
        os.close(replies)
        self.stdin, self.stdout = os.fdopen(to_parent, "w"), os.fdopen(from_parent, "r")

    def poll(self) -> int | None:
        """None while it lives; with which status it ended only its own parent knows."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Until it has ended. Raises TimeoutExpired."""
        if self._end is not None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("jobs.isolation.forkserver", timeout or 0.0)
            os.close(self._end)
            self._end = None
        return 0

    def kill(self) -> None:
        """End it."""
        if self._end is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._end, signal.SIGKILL)


def take_over(cpus: int) -> tuple[TakenOver, IO[str]] | None:
    """The parent that waits for a slot with these cores on the visible GPU, and what it wrote; None: there is none."""
    if (folder := os.environ.get(FOLDER_VARIABLE)) is None:
        return None
    place = _place(Path(folder), next(iter(nvml.visible_uuids()), ""), cpus)
    try:
        return TakenOver(place), open(place.with_suffix(".err"))
    except OSError:
        return None
