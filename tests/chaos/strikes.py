"""What is done to the surroundings of a trial that stands still."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.chaos.arena import RUN
from tests.chaos.scene import Scene

HOUR = 3600.0


def kill_child(scene: Scene) -> None:
    """The trial's own process."""
    os.kill(scene.victim.child, signal.SIGKILL)


def kill_parent(scene: Scene) -> None:
    """The slot's parent."""
    os.kill(scene.victim.parent, signal.SIGKILL)


def kill_actor(scene: Scene) -> None:
    """Ray's process, which holds the slot."""
    os.kill(scene.victim.actor, signal.SIGKILL)


def kill_raylet(scene: Scene) -> None:
    """The node's raylet. The node is lost, its processes must end, and another node joins."""
    node = scene.arena.nodes[scene.victim.node]
    victims = node.workers()
    node.process("raylet").kill()
    _is_deserted(scene, victims)
    _replace(scene)


def fail_power(scene: Scene) -> None:
    """All of a node's processes at once; another joins."""
    _replace(scene)


def cut_for_good(scene: Scene) -> None:
    """The node's network, until the cluster gives it up. Back again, it must end what it runs."""
    name = scene.victim.node
    node = scene.arena.nodes[name]
    victims = node.workers()
    scene.arena.cut(name)
    scene.wait(lambda: not scene.arena.is_alive(name), f"Ray gives up {name}")
    scene.arena.heal(name)
    _is_deserted(scene, victims)
    _replace(scene)


def cut_for_a_moment(scene: Scene) -> None:
    """The node's network, for less time than Ray needs to give it up."""
    scene.arena.cut(scene.victim.node)
    time.sleep(1.5)
    scene.arena.heal(scene.victim.node)


def freeze_raylet(scene: Scene) -> None:
    """The node's raylet stands still until the cluster has given it up, and goes on then."""
    node = scene.arena.nodes[scene.victim.node]
    victims = node.workers()
    raylet = node.process("raylet")
    raylet.suspend()
    scene.wait(lambda: not scene.arena.is_alive(node.name), f"Ray gives up {node.name}")
    raylet.resume()
    _is_deserted(scene, victims)
    _replace(scene)


def add_nodes(scene: Scene) -> None:
    """Two more nodes join: both must be given a trial while the others stand still."""
    names = [scene.arena.add() for _ in range(2)]
    scene.wait(
        lambda: set(names) <= scene.control.nodes_started(), f"{' and '.join(names)} get trials"
    )
    for name in names:  # and leave again, in the middle of their trials
        scene.arena.lose(name)


def lose_gpu(scene: Scene) -> None:
    """The GPU is lost, as at an Xid: NVML does not answer, the trial dies; then it is back."""
    node, before = scene.victim.node, scene.said()
    scene.control.set_gpu(node, "lost")
    os.kill(scene.victim.child, signal.SIGKILL)
    scene.says(before, "does not answer any more and was set aside")
    scene.control.set_gpu(node, "")
    scene.says(before, "is fit again")


def kill_gpu(scene: Scene) -> None:
    """Every CUDA call fails, though NVML answers. The trial dies; then the node is replaced."""
    before = scene.said()
    scene.control.set_gpu(scene.victim.node, "dead")
    os.kill(scene.victim.child, signal.SIGKILL)
    scene.says(before, "fails at every CUDA call and was set aside")
    _replace(scene)


def share_gpu(scene: Scene) -> None:
    """Another process takes memory of the GPU; the trial is begun again elsewhere, or beside it."""
    scene.control.set_gpu(scene.victim.node, "foreign")
    os.kill(scene.victim.parent, signal.SIGKILL)


def share_gpu_for_a_moment(scene: Scene) -> None:
    """Another process comes onto the GPU during the trial, and leaves again."""
    scene.control.set_gpu(scene.victim.node, "busy")
    time.sleep(1.5)
    scene.control.set_gpu(scene.victim.node, "")


def kill_gcs(scene: Scene) -> None:
    """The cluster's head: the driver ends with a sentence; a new cluster resumes the sweep."""
    scene.arena.nodes["head"].process("gcs_server").kill()
    scene.ends(1, says="the Ray cluster was lost")
    scene.arena.restart()
    scene.resume()


def kill_driver(scene: Scene) -> None:
    """The sweep's own process; it is resumed."""
    scene.signal_driver(signal.SIGKILL)
    scene.wait(lambda: scene.status() is not None, "the driver ends")
    scene.resume()


def press_ctrl_c(scene: Scene) -> None:
    """Ctrl-C: what runs may finish; resumed."""
    scene.signal_driver(signal.SIGINT)
    scene.wait(lambda: "-- interrupted" in scene.said(), "the driver hears it")
    scene.release_all()
    scene.ends(130)
    scene.resume()


def start_second_driver(scene: Scene) -> None:
    """The same command once more, while the first runs."""
    second = Scene(scene.arena, scene.config, scene.name, log="second")
    second.resume()
    second.ends(1, says=f"{scene.folder} is in use by another running sweep")


def fill_disk(scene: Scene) -> None:
    """No room for the trial's record, and none when the sweep ends; resumed with room."""
    filler = _fill()
    scene.release()
    scene.wait(lambda: "nothing new is started" in scene.said(), "the full disk is noticed")
    scene.release_all()
    scene.ends(1, says="No space left on device")
    filler.unlink()
    scene.resume()


def fill_disk_for_a_while(scene: Scene) -> None:
    """No room for the trial's record when it ends, but before the sweep does."""
    filler = _fill()
    scene.release()
    scene.wait(lambda: "nothing new is started" in scene.said(), "the full disk is noticed")
    filler.unlink()
    scene.release_all()
    scene.ends(1, says="No space left on device")
    scene.must(
        scene.record(scene.victim.trial_id) is not None,
        "the record was not written when there was room again",
    )
    scene.resume()


def make_read_only(scene: Scene) -> None:
    """The records cannot be written any more; resumed when they can."""
    records = str(scene.folder / "records")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", records], check=True)
    scene.release()
    scene.wait(lambda: "nothing new is started" in scene.said(), "the read-only folder is noticed")
    scene.release_all()
    scene.ends(1, says="Read-only file system")
    subprocess.run(["umount", records], check=True)
    scene.resume()


def plant_torn_file(scene: Scene) -> None:
    """Half a record among the records."""
    whole = next(iter(scene.finished().values()), (0, b'{"spec": {"choices"'))[1]
    _plant(scene, "torn", whole[: len(whole) // 2])


def plant_foreign_file(scene: Scene) -> None:
    """Something else among the records."""
    _plant(scene, "foreign", b'{"another": "program\'s"}')


def set_clock_forward(scene: Scene) -> None:
    """The driver's wall clock, by more than the whole time budget."""
    scene.control.set_clock(scene.control.clock() + 5 * HOUR)


def set_clock_back(scene: Scene) -> None:
    """The driver's wall clock, by a day."""
    scene.control.set_clock(scene.control.clock() - 24 * HOUR)


def resume_with_other_ray(scene: Scene) -> None:
    """The driver dies, and is resumed while the cluster seems to run another Ray version."""
    scene.signal_driver(signal.SIGKILL)
    scene.wait(lambda: scene.status() is not None, "the driver ends")
    true = scene.arena.set_ray_version("1.0.0")
    scene.resume()
    scene.ends(1, says="Version mismatch")
    scene.arena.set_ray_version(true)
    scene.resume()


def _replace(scene: Scene) -> None:
    scene.arena.lose(scene.victim.node)
    scene.arena.add()


def _is_deserted(scene: Scene, processes: Sequence[psutil.Process]) -> None:
    scene.wait(
        lambda: not any(one.is_running() for one in processes), "the lost node's processes end"
    )


def _fill() -> Path:
    filler = RUN / "filler"
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


def _plant(scene: Scene, name: str, content: bytes) -> None:
    path = scene.folder / "records" / f"{name}-{len(scene.planted)}.json"
    path.write_bytes(content)
    scene.planted[path] = content
