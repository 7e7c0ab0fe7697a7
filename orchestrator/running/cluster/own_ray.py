"""A Ray that this process starts for a sweep: watched from its first moment, and ended whole.

Nothing can join such a Ray from elsewhere. If its GCS or its raylet is lost, waiting is in vain.
And most of Ray's calls then block, or end the process in their own words. So a thread watches both.
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
from orchestrator.running.orphans import is_guard

LOOK_SECONDS = 0.25
"""Between two looks at Ray's processes."""
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
PROCESS_NAMES = frozenset(_WATCHED)
"""The processes of Ray that this process starts itself."""
_LONGEST_FOLDER = 40
"""Characters. The path of a Unix socket has at most 107, of which Ray needs 62."""
_PR_SET_CHILD_SUBREAPER = 36


class OwnRay:
    """Looks at the GCS and the raylet among this process's children, and says if one is lost."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        earlier: Collection[psutil.Process] | None = None,
    ) -> None:
        """``earlier``: children that are not of this Ray; None: those that there are now."""
        if earlier is None:
            earlier = psutil.Process().children()
        self._clock = clock
        self._began = clock()
        self._processes: dict[str, psutil.Process] = {}
        self._stopped_since: dict[str, float] = {}
        self._earlier = earlier
        self.is_started = False
        """Set when Ray has started: from then on its processes are known."""

    def loss(self) -> str:
        """What was lost, in words; empty while all is well."""
        if len(self._processes) < len(_WATCHED):
            self._find()
        for name, process in self._processes.items():
            state = self._state(name, process)
            if state:
                return f"its {_WATCHED[name]} {state}"
        # Ray reaps a GCS that ends at once, so that it is never seen here, and waits for it.
        is_late = self._clock() > self._began + GCS_SECONDS
        if not self.is_started and is_late and "gcs_server" not in self._processes:
            return f"its GCS did not start within {GCS_SECONDS:g} s"
        if not self.is_started and self._clock() > self._began + START_SECONDS:
            return f"it did not start within {START_SECONDS:g} s"
        return ""

    def _find(self) -> None:
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                name = child.name()
                # One that has ended already is still listed, and is a loss.
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

    Every record that has arrived is on disk. Enter before Ray starts. Whatever Ray's processes
    leave behind is ended with the context.
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


def descendants() -> list[psutil.Process]:
    """Every process below this one: a raylet's workers, their parents and trials."""
    children: list[psutil.Process] = psutil.Process().children(recursive=True)
    return children


def end_those_left(processes: Iterable[psutil.Process]) -> None:
    """Kill what has not ended by itself. A process that was stopped never would."""
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

    Ray itself leaves the folder of every session behind. A killed driver's is removed by the next.
    """
    parent = None
    if len(tempfile.gettempdir()) > _LONGEST_FOLDER - len(f"/{RAY_PREFIX}12345678"):
        # The sockets below TMPDIR would have no valid address.
        parent = "/tmp"
    with own_folder(RAY_PREFIX, parent) as folder:
        yield str(folder)


def _watch(ray: OwnRay, is_over: threading.Event) -> None:
    while not is_over.wait(LOOK_SECONDS):
        loss = ray.loss()
        if loss and not is_over.is_set():
            _end_process(loss, ray)


def _end_process(loss: str, ray: OwnRay) -> NoReturn:
    """Say what was lost and end at once: nothing can be asked of Ray any more."""
    sentence = f"Ray could not be started here: {loss}; try again"
    if ray.is_started:
        sentence = (
            f"the Ray that was started here was lost: {loss}, and nothing can join it; the same"
            " command with --resume goes on"
        )
    print(sentence, file=sys.stderr, flush=True)
    end_at_once()


def end_at_once() -> NoReturn:
    """End this process with exit status 1, and all that it started: nothing else would end it.

    Only guards go on: they end what is started at this very moment.
    """
    for process in descendants():
        with contextlib.suppress(psutil.Error):
            if not is_guard(process.cmdline()):
                process.kill()
    os._exit(1)


def _adopt_orphans(is_wanted: bool) -> None:
    """Whether processes that lose their parent become this process's children (Linux).

    A killed raylet's workers could not be found otherwise.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(is_wanted), 0, 0, 0)
