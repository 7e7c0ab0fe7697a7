"""What a random killer strikes: the processes of a sweep, its run folder and its disks."""

import contextlib
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.support.disks import without_inodes, without_room

STOP_OF_DRIVER_SECONDS = 3.0
"""A stopped driver is continued after this time: nothing else could go on without it."""
NOTICE_SECONDS = 240.0
"""How long the driver has to end once its run folder cannot be written.

The next record may be the first that cannot be written, so a slot may have to start before."""
_LONGEST_FULL_SECONDS = 30.0
"""How long the disk of temporary files stays full, at most."""

Damage = Callable[[Path], contextlib.AbstractContextManager[Any]]
"""Does something to a folder for as long as the context lasts."""


class StrikeError(Exception):
    """A strike had another effect than docs/reliability.md promises."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Strike:
    """One kind of strike. ``strike`` takes the ``StruckSweep``, and returns whether there was
    something to strike."""

    name: str
    strike: Callable[[Any], bool]
    is_at_start: bool = False
    """Whether the strike is that a driver starts."""
    needs_mounts: bool = False


def _role(process: psutil.Process) -> str:
    name = process.name()
    if name.startswith("ray::"):
        return "" if name.endswith(("DashboardAgent", "RuntimeEnvAgent")) else "worker"
    if "jobs.isolation.forkserver" not in process.cmdline():
        return name.removesuffix("_server")  # "raylet" or "gcs" among them
    parent = process.parent()
    # A child is forked from the parent, so it has the parent's command line.
    is_child = parent is not None and "jobs.isolation.forkserver" in parent.cmdline()
    return "child" if is_child else "parent"


def _await_end(target, what: str) -> None:
    """Raises StrikeError if the driver has not ended after ``NOTICE_SECONDS``."""
    if not target.has_ended(NOTICE_SECONDS):
        raise StrikeError(f"{what}, and the driver went on for {NOTICE_SECONDS:g} s")


def _processes(target, role: str) -> Iterator[psutil.Process]:
    """The processes of a role, below the driver or the driver itself."""
    driver = psutil.Process(target.driver.pid)
    if role == "driver":
        yield driver
        return
    for process in driver.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if _role(process) == role:
                yield process


def _signalled(role: str, number: signal.Signals) -> Strike:
    def strike(target) -> bool:
        victims = list(_processes(target, role))
        if not victims:
            return False
        with contextlib.suppress(psutil.Error):
            victim = target.chance.choice(victims)
            victim.send_signal(number)
            if role == "driver" and number is signal.SIGSTOP:
                time.sleep(STOP_OF_DRIVER_SECONDS)
                victim.send_signal(signal.SIGCONT)
        return True

    return Strike(name=f"{number.name} of the {role}", strike=strike)


def _rename_folder(target) -> bool:
    """The run folder has another name until the driver has ended."""
    if not target.is_begun:
        return False
    elsewhere = target.folder.with_name(f"{target.folder.name}-renamed")
    target.folder.rename(elsewhere)
    try:
        _await_end(target, "the run folder was renamed")
        if target.folder.exists():
            raise StrikeError("a folder was made in place of the one that was renamed")
    finally:
        shutil.rmtree(target.folder, ignore_errors=True)
        elsewhere.rename(target.folder)
    return True


def _delete_folder(target) -> bool:
    """The run folder is deleted file by file, as ``rm -r`` does."""
    if not target.is_begun:
        return False
    shutil.rmtree(target.folder, ignore_errors=True)
    # What was measured may be measured again.
    target.finished.clear()
    _await_end(target, "the run folder was deleted")
    return True


def _delete_lock(target) -> bool:
    with contextlib.suppress(FileNotFoundError):
        (target.folder / "lock").unlink()
        return True
    return False


def _start_second_driver(target) -> bool:
    if not target.is_begun:
        return False
    status = target.start().wait()
    if status != 1 and not target.has_ended(0):
        raise StrikeError(f"a second driver on the folder ended with {status}, not 1")
    return True


def _damaged_run_folder(name: str, damage: Damage, *, is_disk: bool = True) -> Strike:
    """The run folder cannot be written from now until the driver has ended."""

    def strike(target) -> bool:
        if not target.is_begun:
            return False
        with damage(target.folder.parent if is_disk else target.folder):
            _await_end(target, name)
        return True

    return Strike(name=name, strike=strike, needs_mounts=True)


def _damaged_temporary_disk(name: str, damage: Damage) -> Strike:
    """Temporary files cannot be made for a while, at any time from the driver's start."""

    def strike(target) -> bool:
        with damage(target.temporary_disk):
            target.has_ended(target.chance.uniform(1, _LONGEST_FULL_SECONDS))
        return True

    return Strike(name=name, strike=strike, needs_mounts=True)


@contextlib.contextmanager
def _read_only(folder: Path) -> Iterator[None]:
    """The folder is read-only. Files that are open stay writable."""
    # A bind mount, because the kernel makes no disk read-only while a file is open for writing.
    _do("mount", "--bind", str(folder), str(folder))
    try:
        _do("mount", "-o", "remount,bind,ro", str(folder))
        yield
    finally:
        _do("umount", "--lazy", str(folder))


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


ROLES = ("driver", "raylet", "gcs", "worker", "parent", "child")

STRIKES: Sequence[Strike] = (
    *(_signalled(role, signal.SIGKILL) for role in ROLES),
    *(_signalled(role, signal.SIGSTOP) for role in ROLES),
    Strike(name="the run folder is renamed", strike=_rename_folder),
    Strike(name="the run folder is deleted", strike=_delete_folder),
    Strike(name="the lock is deleted", strike=_delete_lock),
    Strike(name="a second driver starts", strike=_start_second_driver),
    Strike(name="two drivers start at once", strike=lambda _: True, is_at_start=True),
    _damaged_run_folder("the run folder's disk fills up", without_room),
    _damaged_run_folder("the run folder's disk runs out of inodes", without_inodes),
    _damaged_run_folder("the run folder becomes read-only", _read_only, is_disk=False),
    _damaged_temporary_disk("the disk of temporary files fills up", without_room),
    _damaged_temporary_disk("the disk of temporary files runs out of inodes", without_inodes),
)
