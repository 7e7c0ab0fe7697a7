"""Watches the processes of a Ray that was started for a sweep, and ends them after the sweep.

Such a Ray has one node, and no other can join. So a lost GCS or raylet does not come back. Most of
Ray's calls then block, or end this process with a message that helps no user. So a thread watches
both processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NoReturn

import psutil

from jobs.isolation.scratch import RAY_PREFIX, own_folder
from orchestrator.running import process_tree
from orchestrator.running.orphans import is_guard

LOOK_SECONDS = 0.25
"""Pause between two looks at Ray's processes."""
STANDSTILL_SECONDS = 30.0
"""How long a process of Ray may be stopped (SIGSTOP) before it counts as lost."""
GCS_SECONDS = 40.0
"""How long Ray's first process may take to appear. Ray itself ends this process after 60 s."""
START_SECONDS = 180.0
"""How long Ray may take to start."""
SHUTDOWN_SECONDS = 20.0
"""How long Ray may take to shut down before its processes are killed."""
_END_SECONDS = 3.0
"""How long Ray's processes have to end by themselves."""
_WATCHED = {"gcs_server": "GCS", "raylet": "raylet"}
"""Process name -> Ray's word for it."""
_LONGEST_FOLDER = 40
"""Characters. The path of a Unix socket has at most 107, of which Ray needs 62."""
_PR_SET_CHILD_SUBREAPER = 36


class OwnRay:
    """Finds the GCS and the raylet among this process's children, and tells if one is lost."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        earlier: Collection[psutil.Process] | None = None,
    ) -> None:
        """``earlier``: children that do not belong to this Ray. None: all present children."""
        if earlier is None:
            earlier = process_tree.children(os.getpid())
        self._clock = clock
        self._began = clock()
        self._processes: dict[str, psutil.Process] = {}
        self._stopped_since: dict[str, float] = {}
        self._earlier = earlier
        self.is_started = False
        """True once Ray has started. Its processes are then known."""

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
        if not self.is_started and is_late and "gcs_server" not in self._processes:
            return f"its GCS did not start within {GCS_SECONDS:g} s"
        if not self.is_started and self._clock() > self._began + START_SECONDS:
            return f"it did not start within {START_SECONDS:g} s"
        return ""

    def _find(self) -> None:
        for child in process_tree.children(os.getpid()):
            with contextlib.suppress(psutil.Error):
                name = child.name()
                # A process that has ended already is still listed. It counts as lost.
                if name in _WATCHED and child not in self._earlier:
                    self._processes.setdefault(name, child)

    def _state(self, name: str, process: psutil.Process) -> str:
        """What is wrong with a process; empty if nothing is."""
        try:
            status = process.status()
        except psutil.NoSuchProcess:
            return "has ended"
        if status == psutil.STATUS_ZOMBIE:
            return "has ended"
        if status != psutil.STATUS_STOPPED:
            self._stopped_since.pop(name, None)
            return ""
        since = self._stopped_since.setdefault(name, self._clock())
        if self._clock() < since + STANDSTILL_SECONDS:
            return ""
        return f"has stood still for {STANDSTILL_SECONDS:g} s"


@contextlib.contextmanager
def watched() -> Iterator[OwnRay]:
    """End this process with a sentence and exit status 1 if its own Ray is lost meanwhile.

    Every record that has arrived is on disk. Enter the context before Ray starts. While it lasts,
    this process adopts the orphans of Ray's processes.
    """
    ray = OwnRay()
    is_over = threading.Event()
    _adopt_orphans(True)
    watcher = threading.Thread(target=_watch, args=(ray, is_over), daemon=True)
    watcher.start()
    try:
        yield ray
    finally:
        is_over.set()
        watcher.join()
        _adopt_orphans(False)


def processes_of_ray() -> list[psutil.Process]:
    """The GCS and the raylet that this process started, and every process below them."""
    found = []
    for process in process_tree.descendants(os.getpid()):
        with contextlib.suppress(psutil.Error):
            if process.name() in _WATCHED:
                found += [process, *process_tree.descendants(process.pid)]
    return found


def end_those_left(processes: Iterable[psutil.Process]) -> None:
    """Kill the processes that have not ended by themselves, such as stopped ones."""
    _, alive = psutil.wait_procs(list(processes), timeout=_END_SECONDS)
    _kill(alive)
    psutil.wait_procs(alive, timeout=_END_SECONDS)


@contextlib.contextmanager
def killed_after_a_while(processes: Sequence[psutil.Process]) -> Iterator[None]:
    """Kill the processes if the context takes longer than ``SHUTDOWN_SECONDS``."""
    timer = threading.Timer(SHUTDOWN_SECONDS, _kill, [processes])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


@contextlib.contextmanager
def temporary_folder() -> Iterator[str]:
    """A folder for Ray's session, removed with it.

    Ray itself never removes the folder of a session. The folder of a killed driver is removed by
    the next driver.
    """
    parent = None
    if len(tempfile.gettempdir()) > _LONGEST_FOLDER - len(f"/{RAY_PREFIX}12345678"):
        # The paths of the sockets below TMPDIR would be too long.
        parent = "/tmp"
    with own_folder(RAY_PREFIX, parent) as folder:
        yield str(folder)


def _watch(ray: OwnRay, is_over: threading.Event) -> None:
    while not is_over.wait(LOOK_SECONDS):
        loss = ray.loss()
        if loss and not is_over.is_set():
            _end_process(loss, ray)


def _end_process(loss: str, ray: OwnRay) -> NoReturn:
    """Print what was lost, and end this process at once. Ray answers no calls any more."""
    sentence = f"Ray could not be started here: {loss}; try again"
    if ray.is_started:
        sentence = (
            f"the Ray that was started here was lost: {loss}, and nothing can join it; the same"
            " command with --resume goes on"
        )
    print(sentence, file=sys.stderr, flush=True)
    end_at_once()


def end_at_once() -> NoReturn:
    """End this process with exit status 1, and all its descendants.

    Only guards go on. They end processes that are being started at this moment.
    """
    for process in process_tree.descendants(os.getpid()):
        with contextlib.suppress(psutil.Error):
            if not is_guard(process.cmdline()):
                process.kill()
    os._exit(1)


def _adopt_orphans(is_wanted: bool) -> None:
    """Set whether processes that lose their parent become this process's children (Linux only).

    Otherwise the workers of a killed raylet could not be found.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(is_wanted), 0, 0, 0)
