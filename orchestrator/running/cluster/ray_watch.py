"""Watches Ray during a sweep. If Ray is lost, this process ends with a sentence.

Most of Ray's calls then block, or end this process with a message that helps no user. A Ray that
was started for the sweep has one node, so its GCS and its raylet do not come back. Any Ray is lost
with its head. Every record that has arrived is on disk by then.
"""

import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import psutil
import ray
import ray._private.worker

from jobs.isolation.scratch import RAY_PREFIX, own_folder
from orchestrator.running.guard import end_at_once

LOOK_SECONDS = 0.25
"""Pause between two looks at Ray."""
HANG_SECONDS = 30.0
"""How long a process of Ray may be stopped (SIGSTOP) before it counts as lost."""
GCS_SECONDS = 40.0
"""How long Ray's first process may take to appear. Ray itself ends this process after 60 s."""
_WATCHED = {"gcs_server": "GCS", "raylet": "raylet"}
"""Process name -> Ray's word for it."""
_KEY = b"orchestrator"
"""A key that no cluster has, so that the head's answer is short."""
_LONGEST_FOLDER = 40
"""Characters. The path of a Unix socket has at most 107, of which Ray needs 62."""


class StartedRay:
    """Tells if the GCS or the raylet is lost, among this process's children from now on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._earlier = _children()
        self._processes: dict[str, psutil.Process] = {}
        self._stopped_since: dict[str, float] = {}
        self.is_started = False
        """True once Ray has started. Its processes are then known."""
        self.is_lost = False
        """True if Ray was lost while it started, and may be started once more."""

    def loss(self) -> str:
        """Which process was lost and how, in words; empty if none was."""
        if len(self._processes) < len(_WATCHED):
            self._find()
        for name, process in self._processes.items():
            state = self._state(name, process)
            if state:
                return f"its {_WATCHED[name]} {state}"
        # Ray reaps a GCS that ends at once, so it is never seen here. But Ray still waits for it.
        is_late = self._clock() > self._began + GCS_SECONDS
        if is_late and not self.is_started and "gcs_server" not in self._processes:
            return f"its GCS did not start within {GCS_SECONDS:g} s"
        return ""

    @property
    def has_gcs(self) -> bool:
        """Whether the GCS runs. If so, Ray itself notices within 30 s that it cannot start."""
        gcs = self._processes.get("gcs_server")
        return gcs is not None and not self._state("gcs_server", gcs)

    def _find(self) -> None:
        for pid in _children() - self._earlier:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                # A process that has ended already is still listed. It counts as lost.
                if process.name() in _WATCHED:
                    self._processes.setdefault(process.name(), process)

    def _state(self, name: str, process: psutil.Process) -> str:
        status = psutil.STATUS_ZOMBIE
        with contextlib.suppress(psutil.NoSuchProcess):
            status = process.status()
        if status == psutil.STATUS_ZOMBIE:
            return "has ended"
        if status != psutil.STATUS_STOPPED:
            self._stopped_since.pop(name, None)
            return ""
        since = self._stopped_since.setdefault(name, self._clock())
        is_hang = self._clock() >= since + HANG_SECONDS
        return f"has stood still for {HANG_SECONDS:g} s" if is_hang else ""


class Head:
    """Asks the cluster's head, its GCS, whether it is there. A stopped one accepts connections."""

    def __init__(self) -> None:
        self._address = str(ray.get_runtime_context().gcs_address)
        self._last_answer = time.monotonic()
        # Half the time after which Ray would end this process, so that the sentence comes first.
        variable = "RAY_gcs_rpc_server_reconnect_timeout_s"
        self._limit_seconds = float(os.environ.get(variable, "60")) / 2

    def loss(self) -> str:
        """That the head does not answer, in words; empty if it does, or did a moment ago."""
        worker: Any = ray._private.worker.global_worker
        with contextlib.suppress(ray.exceptions.RayError):
            worker.gcs_client.internal_kv_get(_KEY, namespace=_KEY, timeout=1.0)
            self._last_answer = time.monotonic()
        if time.monotonic() - self._last_answer > self._limit_seconds:
            return f"its head at {self._address} does not answer"
        return ""


@contextlib.contextmanager
def watched_start(folder: str, *, is_last: bool = True) -> Iterator[StartedRay]:
    """End this process if the Ray that starts in the context, entered before, is lost meanwhile.
    Unless this start ``is_last``, go on if Ray's own call will fail: on a busy machine the raylet
    ends itself if its agents, Python programs, take more than 15 seconds to start
    (ray-project/ray#65983); the second start finds their files in memory."""
    started = StartedRay()

    def act(loss: str) -> None:
        if started.is_started:
            _end(
                f"the Ray that was started here was lost: {loss}, and nothing can join it; the same"
                " command with --resume goes on"
            )
        kept = kept_logs(Path(folder))
        if is_last or not started.has_gcs:
            _end(f"Ray could not be started here: {loss}; {kept}try again")
        started.is_lost = True
        print(f"Ray did not start: {loss}; {kept}it is started once more", file=sys.stderr)

    with _watched(started.loss, act):
        yield started


def kept_logs(folder: Path) -> str:
    """Where the logs of a session that is removed are now, in words; empty if it has none."""
    with contextlib.suppress(OSError):
        for logs in folder.glob("session_*/logs"):
            kept = tempfile.mkdtemp(prefix="ray-logs-")
            shutil.copytree(logs, kept, dirs_exist_ok=True)
            return f"its logs are in {kept}; "
    return ""


@contextlib.contextmanager
def watched_head() -> Iterator[None]:
    """End this process if the head of the cluster that was joined is gone for too long."""
    with _watched(
        Head().loss, lambda loss: _end(f"the Ray cluster was lost: {loss}; --resume goes on")
    ):
        yield


def _end(sentence: str) -> NoReturn:
    print(sentence, file=sys.stderr, flush=True)
    end_at_once()


@contextlib.contextmanager
def _watched(look: Callable[[], str], act: Callable[[str], None]) -> Iterator[None]:
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(LOOK_SECONDS):
            loss = look()
            if loss and not is_over.is_set():
                act(loss)
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


@contextlib.contextmanager
def temporary_folder() -> Iterator[str]:
    """A folder for Ray's session, removed with it, because Ray itself never removes one."""
    parent = None
    if len(tempfile.gettempdir()) > _LONGEST_FOLDER - len(f"/{RAY_PREFIX}12345678"):
        # The paths of the sockets below TMPDIR would be too long.
        parent = "/tmp"
    with own_folder(RAY_PREFIX, parent) as folder:
        yield str(folder)


def _children() -> set[int]:
    """The pids of this process's children, zombies included, by the kernel's own list: where the
    system's clock is moved, psutil leaves out a child that seems older than its parent."""
    pids: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            pids.update(map(int, path.read_text().split()))
    return pids
