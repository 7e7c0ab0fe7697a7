"""A Ray cluster of network namespaces: its nodes can be cut off, killed and added."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.chaos import control, namespaces

CODE = Path(__file__).parents[2]
ROOT = Path("/mnt")
"""A file system of the arena's own, gone with it. Ray's sockets need a short path."""
RUN = ROOT / "run"
"""Where the sweeps write: a small file system that only the head and the driver can see."""
HEAD = "10.77.0.1"
ADDRESS = f"{HEAD}:6379"
_RUN_SIZE = "64m"
_QUICK = {
    # Ray's patience, in small change: a lost node is found out in seconds instead of minutes.
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "4000",
    "RAY_health_check_failure_threshold": "4",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "0" * 64,
    "RAY_enable_metrics_collection": "0",
}
_ASK_GCS = """
import json, sys
from ray._raylet import GcsClient
gcs, place = GcsClient(address=sys.argv[1]), dict(key=b"CLUSTER_METADATA", namespace=b"cluster")
if sys.argv[2] == "alive":
    nodes = gcs.get_all_node_info(timeout=10).values()
    print(json.dumps([node.node_manager_address for node in nodes if node.state == 0]))
else:
    found = json.loads(gcs.internal_kv_get(**place))
    print(json.dumps(found["ray_version"]))
    value = json.dumps({**found, "ray_version": sys.argv[3]}).encode()
    gcs.internal_kv_put(place["key"], value, True, namespace=place["namespace"])
"""


def enter() -> None:
    """Go on in namespaces of one's own, in which whatever is left behind dies with this process."""
    if not namespaces.enter("--net", tools=("nsenter", "ip")):
        sys.exit(
            "a chaos run needs iproute2, util-linux and namespaces,"
            " which this system does not grant"
        )


@dataclass(kw_only=True)
class Node:
    """One machine: the process that keeps its namespaces, and Ray's processes in them."""

    name: str
    address: str
    holder: subprocess.Popen[bytes] | None
    ray: list[psutil.Process] = field(default_factory=list)

    def process(self, name: str) -> psutil.Process:
        """Ray's ``raylet`` or ``gcs_server`` of this node."""
        return next(one for one in self.ray if one.name() == name)

    def workers(self) -> list[psutil.Process]:
        """What the raylet has started, slots and trials among it."""
        return [*self.process("raylet").children(recursive=True)]

    def everything(self) -> list[psutil.Process]:
        """Ray's processes and whatever they have started."""
        found: list[psutil.Process] = []
        for one in self.ray:
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [one, *one.children(recursive=True)]
        return found

    def kill(self) -> None:
        """The power fails."""
        for one in self.everything():
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        if self.holder is not None:
            self.holder.kill()
            self.holder.wait()


class Arena:
    """The machines: a head without a GPU, and nodes with one each.

    ``trials`` is "standin" or "training".
    """

    def __init__(self, trials: str) -> None:
        self.trials = trials
        self.nodes: dict[str, Node] = {}
        self.control = control.Control(ROOT / "control")
        self._made = 0

    @contextlib.contextmanager
    def machines(self) -> Iterator[Arena]:
        """The network and the file systems, empty at first."""
        _do("mount", "-t", "tmpfs", "tmpfs", str(ROOT))
        # Ray leaves word there of the cluster started last, which would be found from outside.
        Path("/tmp/ray").mkdir(exist_ok=True)
        _do("mount", "-t", "tmpfs", "tmpfs", "/tmp/ray")
        RUN.mkdir()
        _do("mount", "-t", "tmpfs", "-o", f"size={_RUN_SIZE}", "tmpfs", str(RUN))
        (ROOT / "control").mkdir()
        self.control.clear()
        _do("ip", "link", "set", "lo", "up")
        _do("ip", "link", "add", "bridge", "type", "bridge")
        _do("ip", "address", "add", f"{HEAD}/24", "dev", "bridge")
        _do("ip", "link", "set", "bridge", "up")
        try:
            yield self
        finally:
            self.stop()
            _do("ip", "link", "delete", "bridge")
            for place in (str(RUN), str(ROOT), "/tmp/ray"):
                _do("umount", "--lazy", place)  # what was killed a moment ago may still hold a file

    def start(self, nodes: int) -> None:
        """Start the head, and so many nodes."""
        options = [
            "--head",
            "--node-ip-address",
            HEAD,
            "--port",
            "6379",
            "--num-cpus",
            "0",
            "--num-gpus",
            "0",
        ]
        head = Node(name="head", address=HEAD, holder=None)
        self._start_ray(
            head, [*options, "--include-dashboard", "false", "--temp-dir", str(ROOT / "ray")]
        )
        self.nodes["head"] = head
        for _ in range(nodes):
            self.add()

    def stop(self) -> None:
        """Every machine is switched off."""
        while self.nodes:
            self.lose(next(iter(self.nodes)))

    def restart(self) -> None:
        """Switch everything off, and on again with as many nodes."""
        nodes = len(self.nodes) - 1
        self.stop()
        self.start(nodes)

    def add(self) -> str:
        """A node joins; its name."""
        self._made += 1
        name, address = f"node{self._made}", f"10.77.0.{self._made + 1}"
        hidden = f"mount -t tmpfs tmpfs {RUN} && exec sleep infinity"
        holder = subprocess.Popen(["unshare", "--net", "--mount", "sh", "-c", hidden])
        _await(lambda: Path(f"/proc/{holder.pid}/comm").read_text().strip() == "sleep")
        _do(
            "ip",
            "link",
            "add",
            name,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            str(holder.pid),
        )
        _do("ip", "link", "set", name, "master", "bridge", "up")
        node = Node(name=name, address=address, holder=holder)
        for command in ("link set lo up", f"address add {address}/24 dev eth0", "link set eth0 up"):
            _do(*_inside(node), "ip", *command.split())
        gpus = "1" if self.trials == "standin" else "0"
        options = [
            "--address",
            ADDRESS,
            "--node-ip-address",
            address,
            "--num-cpus",
            "1",
            "--num-gpus",
            gpus,
        ]
        self._start_ray(node, options)
        self.nodes[name] = node
        return name

    def lose(self, name: str) -> None:
        """A node's power fails."""
        self.nodes.pop(name).kill()

    def cut(self, name: str) -> None:
        """The node's cable is pulled."""
        _do("ip", "link", "set", name, "down")

    def heal(self, name: str) -> None:
        """It is put back."""
        _do("ip", "link", "set", name, "up")

    def is_alive(self, name: str) -> bool:
        """Whether Ray believes so."""
        return self.nodes[name].address in self._ask_gcs("alive")

    def set_ray_version(self, version: str) -> str:
        """Let the cluster say that it runs another Ray; what it said before."""
        return str(self._ask_gcs("version", version))

    def environment(self, node: str) -> Mapping[str, str]:
        """What every process of a node is started with; "" is the driver."""
        own = control.environment(self.control.folder, node, trials=self.trials, code=CODE)
        return {**os.environ, **_QUICK, **own}

    def _ask_gcs(self, *question: str) -> Any:
        """From a process of its own: Ray's client ends the one that it is in when the head dies."""
        command = [sys.executable, "-c", _ASK_GCS, ADDRESS, *question]
        done = subprocess.run(
            command, env={**self.environment("")}, capture_output=True, check=True
        )
        return json.loads(done.stdout)

    def _start_ray(self, node: Node, options: Sequence[str]) -> None:
        before = set(psutil.pids())
        small = [
            "--object-store-memory",
            "80000000",
            "--memory",
            "2000000000",
            "--disable-usage-stats",
        ]
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", *options, *small]
        started = subprocess.run(
            [*_inside(node), *ray],
            env={**self.environment(node.name)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if started.returncode != 0:
            raise RuntimeError(f"{node.name} did not start:\n{started.stdout}\n{started.stderr}")
        # Ray's daemons are orphans by now, and adopted by the first process of these namespaces.
        node.ray = [one for one in psutil.Process(1).children() if one.pid not in before]


def _inside(node: Node) -> Sequence[str]:
    if node.holder is None:
        return ()
    return ("nsenter", "--target", str(node.holder.pid), "--net", "--mount")


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def _await(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(0.05)
