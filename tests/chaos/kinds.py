"""Every kind of fault: what is done, and the effect that it has to have.

A trial does the first three to itself. The others are done while a trial stands still in a phase.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from jobs.record import Outcome
from tests.chaos.arena import RUN
from tests.chaos.child import PHASES
from tests.chaos.scene import Scene, UnexpectedError
from tests.support.disks import without_room

Strike = Callable[[Scene], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One kind of fault: ``strike``, or ``act`` of ``tests.support.faults``."""

    name: str
    answer: str
    """What becomes of the trial, for the page."""
    strike: Strike | None = None
    act: str = ""
    phases: Sequence[str] = PHASES
    outcome: Outcome = Outcome.OK
    """Of the trial that stood still."""
    reason: str = ""
    """What its record's reason has to contain."""
    starts: int = 1
    """How often that trial is begun."""
    always: bool = False
    """The fault meets every attempt of the trial."""
    weight: int = 1
    """How often it is drawn: cheap faults more often than those that cost a cluster."""
    is_last: bool = False
    """The driver ends of itself, and everything else that runs with it."""


_OWN_ROW = "its record; the next trial of the slot is unharmed"
_REPEATED = "the trial is repeated"
_ELSEWHERE = (
    "the trial is repeated on another node; nothing lives on the lost one; a new node gets trials"
)
_UNFIT = "the trial is repeated on another; the GPU gets none until it is fit"
_SHARED = "trials go to another; if there is none, records measured there say so (`flags`)"
_NEW_CLUSTER = "a sentence, exit status 1; a new cluster and `--resume` go on"
_FULL = "nothing new is started; a sentence, exit status 1; `--resume` goes on"
_NO_EFFECT = "nothing; the time budget stays"

KINDS: list[Kind] = [
    Kind(
        name="the trial hangs",
        answer=_OWN_ROW,
        act="hang",
        outcome=Outcome.TIMED_OUT,
        reason="no result after",
    ),
    Kind(
        name="the GPU's memory runs out",
        answer=_OWN_ROW,
        act="raise_device_oom",
        outcome=Outcome.OUT_OF_MEMORY,
    ),
    Kind(
        name="the host's memory runs out",
        answer=_OWN_ROW,
        act="raise_memory_error",
        outcome=Outcome.HOST_OUT_OF_MEMORY,
    ),
]


def _kind(name: str, answer: str, **fields: Any) -> Callable[[Strike], Strike]:
    def add(strike: Strike) -> Strike:
        KINDS.append(Kind(name=name, answer=answer, strike=strike, **fields))
        return strike

    return add


@_kind("SIGKILL of the trial", _OWN_ROW, weight=6, outcome=Outcome.CRASHED, reason="SIGKILL")
def kill_child(scene: Scene) -> None:
    os.kill(scene.victim.child, signal.SIGKILL)


@_kind("SIGKILL of the slot's parent", _REPEATED, weight=6, starts=2)
def kill_parent(scene: Scene) -> None:
    os.kill(scene.victim.parent, signal.SIGKILL)


@_kind(
    "SIGKILL of the actor, every time",
    "repeated twice, then its record",
    always=True,
    starts=3,
    outcome=Outcome.CRASHED,
)
@_kind("SIGKILL of the actor", _REPEATED, weight=6, starts=2)
def kill_actor(scene: Scene) -> None:
    os.kill(scene.victim.actor, signal.SIGKILL)


@contextlib.contextmanager
def _lost_node(scene: Scene) -> Iterator[psutil.Process]:
    """Give the node's raylet. In the end all that it has started must end; another node joins."""
    raylet = scene.arena.nodes[scene.victim.node].process("raylet")
    started = raylet.children(recursive=True)  # slots and trials among it
    yield raylet
    scene.wait(
        lambda: not any(one.is_running() for one in started), "the lost node's processes end"
    )
    fail_power(scene)


@_kind("SIGKILL of a node's raylet", _ELSEWHERE, starts=2)
def kill_raylet(scene: Scene) -> None:
    with _lost_node(scene) as raylet:
        raylet.kill()


@_kind("a node's power fails", _ELSEWHERE, starts=2)
def fail_power(scene: Scene) -> None:
    scene.arena.lose(scene.victim.node)
    scene.arena.add()


def _is_given_up(scene: Scene) -> None:
    name = scene.victim.node
    scene.wait(lambda: not scene.arena.is_alive(name), f"Ray gives up {name}")


@_kind("a node's network is cut", _ELSEWHERE, starts=2)
def cut_for_good(scene: Scene) -> None:
    """Until the cluster gives it up. Back again, it must end what it runs."""
    with _lost_node(scene):
        scene.arena.cut(scene.victim.node)
        _is_given_up(scene)
        scene.arena.heal(scene.victim.node)


@_kind("a node's raylet stands still", _ELSEWHERE, starts=2)
def freeze_raylet(scene: Scene) -> None:
    """Until the cluster has given it up, and goes on then."""
    with _lost_node(scene) as raylet:
        raylet.suspend()
        _is_given_up(scene)
        raylet.resume()


@_kind("a node's network is cut for a moment", "nothing", weight=6)
def cut_for_a_moment(scene: Scene) -> None:
    """For less time than Ray needs to give it up."""
    scene.arena.cut(scene.victim.node)
    time.sleep(1.5)
    scene.arena.heal(scene.victim.node)


@_kind("two nodes join and leave", "both get trials, which are repeated elsewhere")
def add_nodes(scene: Scene) -> None:
    """Both must be given a trial while the others stand still, and leave in the middle of it."""
    names = [scene.arena.add() for _ in range(2)]

    def started_on() -> set[str]:
        paths = (scene.control.folder / "starts").iterdir()
        return {node for path in paths for _, node in scene.control.starts(path.name)}

    scene.wait(lambda: set(names) <= started_on(), f"{' and '.join(names)} get trials")
    for name in names:
        scene.arena.lose(name)


@_kind("a GPU does not answer any more", _UNFIT, starts=2)
def lose_gpu(scene: Scene) -> None:
    """As at an Xid: NVML does not answer, the trial dies; then the GPU is back."""
    gpu, before = f"gpus/{scene.victim.node}", scene.said()
    scene.control.write(gpu, "lost")
    kill_child(scene)
    scene.says("does not answer any more and was set aside", before)
    scene.control.write(gpu, "")
    scene.says("is fit again", before)


@_kind("a GPU fails at every CUDA call", _UNFIT, starts=2)
def kill_gpu(scene: Scene) -> None:
    """Though NVML answers. The trial dies; then the node is replaced."""
    before = scene.said()
    scene.control.write(f"gpus/{scene.victim.node}", "dead")
    kill_child(scene)
    scene.says("fails at every CUDA call and was set aside", before)
    fail_power(scene)


@_kind("another process's memory on a GPU", _SHARED, starts=2)
def share_gpu(scene: Scene) -> None:
    """The trial is begun again elsewhere, or beside the other process."""
    scene.control.write(f"gpus/{scene.victim.node}", "foreign")
    kill_parent(scene)


@_kind(
    "another process on a GPU for a moment",
    "the trial is measured again",
    phases=PHASES[PHASES.index("first_step") :],
    starts=2,
)
def share_gpu_for_a_moment(scene: Scene) -> None:
    scene.control.write(f"gpus/{scene.victim.node}", "busy")
    # At the second look the trial has counted what it saw at the first.
    has_counted = lambda: scene.control.looks(scene.victim.child) > 1  # noqa: E731
    scene.wait(has_counted, "the trial counts the other process")
    scene.control.write(f"gpus/{scene.victim.node}", "")


@_kind("SIGKILL of the cluster's head (GCS)", _NEW_CLUSTER, starts=2)
def kill_gcs(scene: Scene) -> None:
    scene.arena.nodes["head"].process("gcs_server").kill()
    scene.ends(1, says="the Ray cluster was lost")
    scene.arena.restart()
    scene.resume()


@_kind("the cluster runs another Ray", _NEW_CLUSTER, starts=2)
def resume_with_other_ray(scene: Scene) -> None:
    """The driver dies, and is resumed while the cluster seems to run another Ray version."""
    scene.kill_driver()
    true = scene.arena.set_ray_version("1.0.0")
    scene.resume()
    scene.ends(1, says="Version mismatch")
    scene.arena.set_ray_version(true)
    scene.resume()


@_kind("SIGKILL of the driver", "`--resume` goes on", starts=2)
def kill_driver(scene: Scene) -> None:
    scene.kill_driver()
    scene.resume()


@_kind("Ctrl-C", "running trials end; exit status 130; `--resume` goes on", is_last=True)
def press_ctrl_c(scene: Scene) -> None:
    scene.driver.send_signal(signal.SIGINT)
    scene.says("-- interrupted")
    scene.control.release_all()
    scene.ends(130)
    scene.resume()


@_kind("a second driver on the folder", "refused, exit status 1", weight=6)
def start_second_driver(scene: Scene) -> None:
    second = Scene(scene.arena, scene.config, scene.name, log="second")
    second.resume()
    second.ends(1, says=f"{scene.folder} is in use by another running sweep")


def _ends_unwritten(scene: Scene, says: str, meanwhile: Callable[[], None] = lambda: None) -> None:
    """The trial's record cannot be written, so the sweep ends, and says why."""
    scene.release()
    scene.says("nothing new is started")
    meanwhile()
    scene.control.release_all()
    scene.ends(1, says=says)


@_kind("the disk is full", _FULL, is_last=True, starts=2)
def fill_disk(scene: Scene) -> None:
    """No room for the trial's record, and none when the sweep ends; resumed with room."""
    with without_room(RUN):
        _ends_unwritten(scene, "No space left on device")
    scene.resume()


@_kind("the disk is full for a while", _FULL, is_last=True)
def fill_disk_for_a_while(scene: Scene) -> None:
    """No room for the trial's record when it ends, but before the sweep does."""
    with without_room(RUN) as filler:
        _ends_unwritten(scene, "No space left on device", filler.unlink)
    if scene.record(scene.victim.trial_id) is None:
        raise UnexpectedError("the record was not written when there was room again")
    scene.resume()


@_kind("the records become read-only", _FULL, is_last=True, starts=2)
def make_read_only(scene: Scene) -> None:
    records = str(scene.folder / "records")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", records], check=True)
    _ends_unwritten(scene, "Read-only file system")
    subprocess.run(["umount", records], check=True)
    scene.resume()


def _plant(scene: Scene, content: bytes) -> None:
    path = scene.folder / "records" / f"planted-{len(scene.planted)}.json"
    path.write_bytes(content)
    scene.planted[path] = content


@_kind("a torn record in the folder", "left alone", weight=6)
def plant_torn_file(scene: Scene) -> None:
    _plant(scene, b'{"spec": {"choices": {"micro_batch": 1, "acc')


@_kind("a foreign file in the folder", "left alone", weight=6)
def plant_foreign_file(scene: Scene) -> None:
    _plant(scene, b'{"another": "program\'s"}')


@_kind("the driver's clock jumps ahead", _NO_EFFECT, weight=6)
def set_clock_forward(scene: Scene) -> None:
    """By more than the whole time budget."""
    scene.control.write("clock", scene.control.read("clock") + 5 * 3600.0)


@_kind("the driver's clock jumps back", _NO_EFFECT, weight=6)
def set_clock_back(scene: Scene) -> None:
    """By a day."""
    scene.control.write("clock", scene.control.read("clock") - 24 * 3600.0)
