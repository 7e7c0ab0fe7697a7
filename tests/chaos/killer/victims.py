"""What a random killer strikes: the processes of a sweep, its run folder and its disks."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.chaos.killer import disks

STOP_OF_DRIVER_SECONDS = 3.0
"""A stopped driver is continued after this time: nothing else could go on without it."""
NOTICE_SECONDS = 240.0
"""How long the driver has to end once its run folder cannot be written.

The next record may be the first that cannot be written, so a slot may have to start before."""
_LONGEST_FULL_SECONDS = 30.0
"""How long the disk of temporary files stays full, at most."""
_AGENTS = ("DashboardAgent", "RuntimeEnvAgent")


class StrikeError(Exception):
    """A strike had another effect than docs/reliability.md promises."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Strike:
    """One kind of strike. ``strike`` returns whether there was something to strike."""

    name: str
    strike: Callable[[Target], bool]
    is_at_start: bool = False
    """Whether the strike is that a driver starts."""
    needs_mounts: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A sweep that runs."""

    driver: psutil.Process
    has_ended: Callable[[float], bool]
    """Waits for the driver's end for so many seconds at most; whether it has ended."""
    folder: Path
    run_disk: Path
    temporary_disk: Path
    chance: random.Random
    second_driver: Callable[[], int]
    """Starts another driver on the folder; its exit status."""
    forget: Callable[[], None]
    """The records that there were are deleted by the strike, so they may be measured again."""


def with_environment(name: str, value: str) -> list[psutil.Process]:
    """Every living process with this environment variable, stopped ones too."""
    listed = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            is_alive = process.status() != psutil.STATUS_ZOMBIE
            if is_alive and process.environ().get(name) == value:
                listed.append(process)
    return listed


def _processes(target: Target, role: str) -> list[psutil.Process]:
    """The processes of a role below the driver."""
    if role == "driver":
        return [target.driver]
    listed = []
    for process in target.driver.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if _role(process) == role:
                listed.append(process)
    return listed


def _role(process: psutil.Process) -> str:
    name = process.name()
    if name in ("gcs_server", "raylet"):
        return name
    if name.startswith("ray::"):
        return "" if name.endswith(_AGENTS) else "worker"
    if "jobs.isolation.forkserver" not in process.cmdline():
        return ""
    parent = process.parent()
    if parent is not None and "jobs.isolation.forkserver" in parent.cmdline():
        return "child"  # forked from the parent, it has the parent's command line
    return "parent"


def _signalled(role: str, number: signal.Signals) -> Strike:
    def strike(target: Target) -> bool:
        victims = _processes(target, role)
        if not victims:
            return False
        with contextlib.suppress(psutil.Error):
            victim = target.chance.choice(victims)
            victim.send_signal(number)
            if role == "driver" and number is signal.SIGSTOP:
                time.sleep(STOP_OF_DRIVER_SECONDS)
                victim.send_signal(signal.SIGCONT)
        return True

    return Strike(name=f"{number.name} of the {role.replace('_server', '')}", strike=strike)


def _is_begun(target: Target) -> bool:
    return (target.folder / "run.json").exists()


def _await_end(target: Target, what: str) -> None:
    """Raises StrikeError if the driver has not ended after ``NOTICE_SECONDS``."""
    if not target.has_ended(NOTICE_SECONDS):
        raise StrikeError(f"{what}, and the driver went on for {NOTICE_SECONDS:g} s")


def _rename_folder(target: Target) -> bool:
    """The run folder has another name until the driver has ended."""
    if not _is_begun(target):
        return False
    elsewhere = target.folder.with_name(f"{target.folder.name}-renamed")
    target.folder.rename(elsewhere)
    try:
        _await_end(target, "the run folder was renamed")
        if target.folder.exists():
            raise StrikeError("a folder was made in place of the one that was renamed")
    finally:
        if target.folder.exists():
            shutil.rmtree(target.folder)
        elsewhere.rename(target.folder)
    return True


def _delete_folder(target: Target) -> bool:
    """The run folder is deleted file by file, as ``rm -r`` does."""
    if not _is_begun(target):
        return False
    shutil.rmtree(target.folder, ignore_errors=True)
    target.forget()
    _await_end(target, "the run folder was deleted")
    return True


def _delete_lock(target: Target) -> bool:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(target.folder / "lock")
        return True
    return False


def _start_second_driver(target: Target) -> bool:
    if not _is_begun(target):
        return False
    status = target.second_driver()
    if status != 1 and not target.has_ended(0):
        raise StrikeError(f"a second driver on the folder ended with {status}, not 1")
    return True


def _damaged_run_folder(name: str, damage: disks.Damage, *, is_disk: bool) -> Strike:
    """The run folder cannot be written from now until the driver has ended."""

    def strike(target: Target) -> bool:
        if not _is_begun(target):
            return False
        folder = target.folder
        if is_disk:
            folder = target.run_disk
        with damage(folder):
            _await_end(target, name)
        return True

    return Strike(name=name, strike=strike, needs_mounts=True)


def _damaged_temporary_disk(name: str, damage: disks.Damage) -> Strike:
    """Temporary files cannot be made for a while, at any time from the driver's start."""

    def strike(target: Target) -> bool:
        with damage(target.temporary_disk):
            target.has_ended(target.chance.uniform(1, _LONGEST_FULL_SECONDS))
        return True

    return Strike(name=name, strike=strike, needs_mounts=True)


def _nothing_more(target: Target) -> bool:
    """The strike was the start of two drivers."""
    return True


ROLES = ("driver", "raylet", "gcs_server", "worker", "parent", "child")

STRIKES: Sequence[Strike] = (
    *(_signalled(role, signal.SIGKILL) for role in ROLES),
    *(_signalled(role, signal.SIGSTOP) for role in ROLES),
    Strike(name="the run folder is renamed", strike=_rename_folder),
    Strike(name="the run folder is deleted", strike=_delete_folder),
    Strike(name="the lock is deleted", strike=_delete_lock),
    Strike(name="a second driver starts", strike=_start_second_driver),
    Strike(name="two drivers start at once", strike=_nothing_more, is_at_start=True),
    _damaged_run_folder("the run folder's disk fills up", disks.without_room, is_disk=True),
    _damaged_run_folder(
        "the run folder's disk runs out of inodes", disks.without_inodes, is_disk=True
    ),
    _damaged_run_folder("the run folder becomes read-only", disks.read_only, is_disk=False),
    _damaged_temporary_disk("the disk of temporary files fills up", disks.without_room),
    _damaged_temporary_disk("the disk of temporary files runs out of inodes", disks.without_inodes),
)
