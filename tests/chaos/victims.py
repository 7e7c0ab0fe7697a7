"""What a random killer strikes: the processes of a sweep, and its run folder."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

STOP_OF_DRIVER_SECONDS = 3.0
"""A stopped driver is continued after this time: nothing else could go on without it."""
_AGENTS = ("DashboardAgent", "RuntimeEnvAgent")


@dataclass(frozen=True, kw_only=True, slots=True)
class Strike:
    """One kind of strike. ``strike`` returns whether there was something to strike."""

    name: str
    strike: Callable[[Target], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A sweep that runs."""

    driver: psutil.Process
    folder: Path
    chance: random.Random
    second_driver: Callable[[], int]
    """Starts another driver on the folder; its exit status."""


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


def _rename_folder(target: Target) -> bool:
    """The run folder has another name until the driver has ended."""
    if not (target.folder / "run.json").exists():
        return False
    elsewhere = target.folder.with_name(f"{target.folder.name}-renamed")
    target.folder.rename(elsewhere)
    with contextlib.suppress(psutil.TimeoutExpired):
        target.driver.wait(120)
    elsewhere.rename(target.folder)
    return True


def _delete_lock(target: Target) -> bool:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(target.folder / "lock")
        return True
    return False


def _start_second_driver(target: Target) -> bool:
    if not (target.folder / "run.json").exists():
        return False
    status = target.second_driver()
    if status != 1 and target.driver.is_running():
        raise AssertionError(f"a second driver on the folder ended with {status}, not 1")
    return True


ROLES = ("driver", "raylet", "gcs_server", "worker", "parent", "child")

STRIKES: Sequence[Strike] = (
    *(_signalled(role, signal.SIGKILL) for role in ROLES),
    *(_signalled(role, signal.SIGSTOP) for role in ROLES),
    Strike(name="the run folder is renamed", strike=_rename_folder),
    Strike(name="the lock is deleted", strike=_delete_lock),
    Strike(name="a second driver starts", strike=_start_second_driver),
)
